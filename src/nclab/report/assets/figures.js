// The figures of papers, drawn by plotly from their numbers.
"use strict";
nclab.figures = {};
nclab.addFigure = (id, spec) => {
  nclab.figures[id] = spec;
};

nclab.recolour = (value) => {
  // The figure in the dark theme: replace every light colour by its dark counterpart.
  const light = nclab.palette.light;
  const dark = nclab.palette.dark;
  const twins = {};
  light.lines.forEach((colour, place) => {
    twins[colour] = dark.lines[place];
  });
  ["ink", "muted", "grid", "background"].forEach((name) => {
    twins[light[name]] = dark[name];
  });
  ["ramp", "diverging"].forEach((name) => {
    light[name].forEach((stop, place) => {
      twins[stop[1]] = dark[name][place][1];
    });
  });
  function twin(colour) {
    // Also replace transparent colours such as rgba(31,35,40,0.18).
    const [, rgb, alpha] = /^rgba\((\d+,\d+,\d+),([\d.]+)\)$/.exec(colour) || [];
    if (!rgb) return twins[colour] || colour;
    const hex = rgb.split(",").map((one) => Number(one).toString(16).padStart(2, "0"));
    const own = twins[`#${hex.join("").toUpperCase()}`] || twins[`#${hex.join("")}`];
    if (!own) return colour;
    return `rgba(${[1, 3, 5].map((at) => parseInt(own.slice(at, at + 2), 16)).join(",")},${alpha})`;
  }
  function walk(part) {
    if (Array.isArray(part))
      return typeof part[0] === "number" && part.length > 2 ? part : part.map(walk);
    if (part && typeof part === "object") {
      const made = {};
      Object.keys(part).forEach((key) => {
        made[key] = key === "x" || key === "y" || key === "z" ? part[key] : walk(part[key]);
      });
      return made;
    }
    return typeof part === "string" ? twin(part) : part;
  }
  return walk(value);
};

nclab.drawFigure = (box) => {
  const spec = nclab.figures[box.getAttribute("data-figure")];
  if (!spec || !window.Plotly) return;
  let figure = {
    data: spec.data,
    layout: Object.assign({}, spec.layout, {
      title: undefined,
      margin: Object.assign({}, spec.layout.margin, { t: 30 }),
    }),
  };
  figure.layout.height = spec.layout.height - 30;
  if (nclab.dark()) figure = nclab.recolour(figure);
  const image = box.querySelector("img");
  const plot =
    box.querySelector(".plot") || box.appendChild(nclab.element("div", { class: "plot" }));
  // On a small screen a figure with many panels scrolls sideways and keeps its width.
  const lefts = Object.keys(spec.layout)
    .filter((key) => key.indexOf("xaxis") === 0)
    .map((key) => spec.layout[key].domain[0]);
  const least = spec.layout.meta?.least || 0;
  plot.style.minWidth = `${Math.max(200 * new Set(lefts).size, least)}px`;
  window.Plotly.react(plot, figure.data, figure.layout, nclab.plotConfig).then(() => {
    if (image) image.remove();
    box.setAttribute("data-drawn", "yes");
    const png = document.querySelector(`[data-png="${box.getAttribute("data-figure")}"]`);
    if (png) png.hidden = false;
  });
};

document.addEventListener("DOMContentLoaded", () => {
  const boxes = Array.from(document.querySelectorAll("[data-figure]"));
  document.querySelectorAll("[data-png]").forEach((button) => {
    // PNG is made on request; the report contains SVG and PDF.
    button.addEventListener("click", () => {
      const plot = document.querySelector(`[data-figure="${button.dataset.png}"] .plot`);
      const { width, height } = plot.getBoundingClientRect();
      const size = { width: Math.round(width), height: Math.round(height), scale: 2 };
      window.Plotly.downloadImage(plot, { format: "png", filename: button.dataset.png, ...size });
    });
  });
  const waiting = boxes.slice();
  function next() {
    // Draw visible figures first, the others while the browser is idle.
    if (!waiting.length) return;
    waiting.sort(
      (one, other) =>
        Math.abs(one.getBoundingClientRect().top) - Math.abs(other.getBoundingClientRect().top),
    );
    nclab.drawFigure(waiting.shift());
    (window.requestIdleCallback || window.setTimeout)(next);
  }
  next();
  nclab.onTheme(() => {
    boxes.forEach(nclab.drawFigure);
  });
  // Paper is narrower than most screens. Lay the figures out again before this function returns,
  // because the browser prints then; Plots.resize would finish too late.
  function fit(width) {
    document.querySelectorAll(".plot").forEach((plot) => {
      plot.style.width = width ? `${width}px` : "";
      if (window.Plotly && plot.layout) window.Plotly.relayout(plot, { width, autosize: !width });
    });
  }
  window.addEventListener("beforeprint", () => fit(680));
  window.addEventListener("afterprint", () => fit(null));
});
