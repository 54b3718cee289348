// What every page shares: elements from text, numbers for people, the theme.
"use strict";
window.nclab = window.nclab || {};

nclab.element = (tag, attributes, children) => {
  const made = document.createElement(tag);
  Object.keys(attributes || {}).forEach((name) => {
    if (name === "text") made.textContent = attributes.text;
    else if (name.slice(0, 2) === "on") made.addEventListener(name.slice(2), attributes[name]);
    else if (attributes[name] !== null && attributes[name] !== undefined)
      made.setAttribute(name, attributes[name]);
  });
  (children || []).forEach((child) => {
    if (child) made.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
  });
  return made;
};

nclab.number = (value, digits) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 1e5 || size < 1e-3
      ? value.toExponential(digits ? digits - 1 : 2).replace(/\.?0+e/, "e")
      : String(Number(value.toPrecision(digits || 4)));
  return text.replace(/-/g, "−");
};

nclab.stateOf = (run) => {
  // State, health and alarms of a run, shown in the same way on all pages.
  const parts = [nclab.element("span", { class: `state ${run.state}`, text: run.state })];
  if (run.health)
    parts.push(
      nclab.element("span", { class: "health", text: run.health, title: run.why || null }),
    );
  if (run.alarms) {
    const words = `${run.alarms} alarm${run.alarms > 1 ? "s" : ""}`;
    parts.push(nclab.element("span", { class: "health alarm", text: words }));
  }
  if (run.state === "running" && run.progress !== null && run.progress !== undefined) {
    const bar = nclab.element("span", { class: "bar" }, [nclab.element("span")]);
    bar.firstChild.style.width = `${Math.round(100 * run.progress)}%`;
    parts.push(bar);
  }
  return nclab.element("span", { class: "states" }, parts);
};

nclab.prefersDark = window.matchMedia?.("(prefers-color-scheme: dark)"); // every curve needs it

nclab.dark = () => {
  const chosen = document.documentElement.getAttribute("data-theme");
  if (chosen) return chosen === "dark";
  return Boolean(nclab.prefersDark?.matches);
};

nclab.paper = () => nclab.palette[nclab.dark() ? "dark" : "light"];

nclab.line = (place) => {
  // The last colour of the palette is reserved for theory; runs and classes use the others.
  const lines = nclab.paper().lines;
  const many = lines.length - 1;
  return lines[((place % many) + many) % many];
};

nclab.dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3], [12, 4]];
nclab.dash = (place) =>
  nclab.dashes[Math.floor(place / (nclab.paper().lines.length - 1)) % nclab.dashes.length];

nclab.whileShown = (open) => {
  // Browsers open at most six connections to a server, so that hidden pages must close theirs.
  let source = null;
  function stop() {
    if (source) source.close();
    source = null;
  }
  function go() {
    if (!source && !document.hidden) source = open();
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else go();
  });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", go);
  go();
  return {
    stop: stop,
    again: () => {
      stop();
      go();
    },
    open: () => Boolean(source),
  };
};

nclab.redraws = [];
nclab.onTheme = (draw) => {
  nclab.redraws.push(draw);
};

nclab.save = (name, text, type) => {
  const link = nclab.element("a", {
    href: URL.createObjectURL(new Blob([text], { type: type || "text/plain" })),
    download: name,
  });
  document.body.appendChild(link);
  link.click();
  link.remove();
  setTimeout(() => {
    URL.revokeObjectURL(link.href);
  }, 1000);
};

nclab.csvCell = (value) => {
  let text = value === null || value === undefined ? "" : String(value);
  // A text that a spreadsheet would take for a formula stays a text.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};

nclab.canvas = (box, height, draw) => {
  // A canvas as wide as its box, sharp on fine screens, drawn again when either changes.
  const canvas = nclab.element("canvas", { role: "img" });
  box.appendChild(canvas);
  const state = {
    canvas: canvas,
    width: 0,
    height: height,
    pen: canvas.getContext("2d"),
    queued: false,
  };
  function drawNow() {
    state.queued = false;
    const width = Math.max(120, box.clientWidth);
    const tall = typeof height === "function" ? height(width) : height;
    const fine = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * fine) || canvas.height !== Math.round(tall * fine)) {
      canvas.width = Math.round(width * fine);
      canvas.height = Math.round(tall * fine);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${tall}px`;
    }
    state.width = width;
    state.height = tall;
    state.pen.setTransform(fine, 0, 0, fine, 0, 0);
    draw(state.pen, width, tall);
  }
  state.redraw = () => {
    if (nclab.printing) return drawNow(); // the browser draws no further frame before it prints
    if (state.queued) return undefined;
    state.queued = true;
    window.requestAnimationFrame(drawNow);
    return undefined;
  };
  if (window.ResizeObserver) new ResizeObserver(state.redraw).observe(box);
  nclab.onTheme(state.redraw);
  state.redraw();
  return state;
};

(() => {
  function apply(theme) {
    if (theme) document.documentElement.setAttribute("data-theme", theme);
    else document.documentElement.removeAttribute("data-theme");
  }
  let kept = null;
  try {
    kept = window.localStorage.getItem("nclab-theme");
  } catch {
    kept = null;
  }
  if (kept === "dark" || kept === "light") apply(kept);
  function redraw() {
    nclab.redraws.forEach((draw) => {
      draw();
    });
  }
  nclab.prefersDark?.addEventListener("change", redraw);
  // In print, use light colours and open all folded sections.
  let folded = [];
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = document.documentElement.getAttribute("data-theme");
    folded = Array.from(document.querySelectorAll("details:not([open]):not(.chooser)"));
    folded.forEach((one) => {
      one.open = true;
    });
    nclab.printing = true;
    if (!nclab.dark()) return;
    apply("light");
    redraw();
  });
  window.addEventListener("afterprint", () => {
    nclab.printing = false;
    folded.forEach((one) => {
      one.open = false;
    });
    apply(before);
    redraw();
  });
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-share]").forEach((part) => {
      part.style.flexGrow = part.dataset.share;
    });
    document.querySelectorAll(".gallery img").forEach((image) => {
      const tall = () => {
        image.classList.toggle("tall", image.naturalHeight > 1.1 * image.naturalWidth);
      };
      if (image.complete) tall();
      image.addEventListener("load", tall);
    });
    const button = document.getElementById("theme");
    if (!button) return;
    button.addEventListener("click", () => {
      const next = nclab.dark() ? "light" : "dark";
      apply(next);
      try {
        window.localStorage.setItem("nclab-theme", next);
      } catch {
        /* private window */
      }
      redraw();
    });
  });
})();
