// What every page shares: elements from text, numbers for people, the theme.
"use strict";
var nclab = window.nclab || {};
window.nclab = nclab;

nclab.element = function (tag, attributes, children) {
  var made = document.createElement(tag);
  Object.keys(attributes || {}).forEach(function (name) {
    if (name === "text") made.textContent = attributes.text;
    else if (name.slice(0, 2) === "on") made.addEventListener(name.slice(2), attributes[name]);
    else if (attributes[name] !== null && attributes[name] !== undefined) made.setAttribute(name, attributes[name]);
  });
  (children || []).forEach(function (child) {
    if (child) made.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
  });
  return made;
};

nclab.number = function (value, digits) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  if (value === 0) return "0";
  var size = Math.abs(value);
  var text = size >= 1e5 || size < 1e-3 ? value.toExponential(digits ? digits - 1 : 2).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(digits || 4)));
  return text.replace(/-/g, "−");
};

nclab.dark = function () {
  var chosen = document.documentElement.getAttribute("data-theme");
  if (chosen) return chosen === "dark";
  return window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches;
};

nclab.paper = function () {
  return nclab.palette[nclab.dark() ? "dark" : "light"];
};

nclab.line = function (place) {
  // The last of the palette is for theory; runs and classes take the others.
  var lines = nclab.paper().lines, many = lines.length - 1;
  return lines[((place % many) + many) % many];
};

nclab.dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3], [12, 4]];
nclab.dash = function (place) {
  return nclab.dashes[Math.floor(place / (nclab.paper().lines.length - 1)) % nclab.dashes.length];
};

nclab.whileShown = function (open) {
  // A browser has six connections to a server: a page that nobody looks at holds none.
  var source = null;
  function stop() {
    if (source) source.close();
    source = null;
  }
  function go() {
    if (!source && !document.hidden) source = open();
  }
  document.addEventListener("visibilitychange", function () { if (document.hidden) stop(); else go(); });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", go);
  go();
  return { stop: stop, again: function () { stop(); go(); }, open: function () { return Boolean(source); } };
};

nclab.redraws = [];
nclab.onTheme = function (draw) {
  nclab.redraws.push(draw);
};

nclab.save = function (name, text, type) {
  var link = nclab.element("a", { href: URL.createObjectURL(new Blob([text], { type: type || "text/plain" })), download: name });
  document.body.appendChild(link);
  link.click();
  link.remove();
  setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
};

nclab.csvCell = function (value) {
  var text = value === null || value === undefined ? "" : String(value);
  // A text that a spreadsheet would take for a formula stays a text.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
};

nclab.canvas = function (box, height, draw) {
  // A canvas as wide as its box, sharp on fine screens, drawn again when either changes.
  var canvas = nclab.element("canvas", { role: "img" });
  box.appendChild(canvas);
  var state = { canvas: canvas, width: 0, height: height, pen: canvas.getContext("2d"), queued: false };
  state.redraw = function () {
    if (state.queued) return;
    state.queued = true;
    window.requestAnimationFrame(function () {
      state.queued = false;
      var width = Math.max(120, box.clientWidth), tall = typeof height === "function" ? height(width) : height;
      var fine = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(width * fine) || canvas.height !== Math.round(tall * fine)) {
        canvas.width = Math.round(width * fine);
        canvas.height = Math.round(tall * fine);
        canvas.style.width = width + "px";
        canvas.style.height = tall + "px";
      }
      state.width = width;
      state.height = tall;
      state.pen.setTransform(fine, 0, 0, fine, 0, 0);
      draw(state.pen, width, tall);
    });
  };
  if (window.ResizeObserver) new ResizeObserver(state.redraw).observe(box);
  nclab.onTheme(state.redraw);
  state.redraw();
  return state;
};

(function () {
  function apply(theme) {
    if (theme) document.documentElement.setAttribute("data-theme", theme);
    else document.documentElement.removeAttribute("data-theme");
  }
  var kept = null;
  try { kept = window.localStorage.getItem("nclab-theme"); } catch (error) { kept = null; }
  if (kept === "dark" || kept === "light") apply(kept);
  function redraw() {
    nclab.redraws.forEach(function (draw) { draw(); });
  }
  if (window.matchMedia) window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.addEventListener("DOMContentLoaded", function () {
    document.querySelectorAll("[data-share]").forEach(function (part) { part.style.flexGrow = part.dataset.share; });
    var button = document.getElementById("theme");
    if (!button) return;
    button.addEventListener("click", function () {
      var next = nclab.dark() ? "light" : "dark";
      apply(next);
      try { window.localStorage.setItem("nclab-theme", next); } catch (error) { /* private window */ }
      redraw();
    });
  });
})();
