// The cosines between classes as a map of colours.
"use strict";

nclab.mix = function (stops, share) {
  // A colour between the stops of a scale; share from 0 to 1.
  var place = Math.min(1, Math.max(0, share)), at = 1;
  while (at < stops.length - 1 && stops[at][0] < place) at++;
  var low = stops[at - 1], high = stops[at], part = (place - low[0]) / (high[0] - low[0] || 1);
  function channel(colour, from) { return parseInt(colour.slice(from, from + 2), 16); }
  return [1, 3, 5].map(function (from) {
    return Math.round(channel(low[1], from) + part * (channel(high[1], from) - channel(low[1], from)));
  });
};

nclab.heatMap = function (box, options) {
  // options: {size, fine, values, names}
  var view = Object.assign({ values: [] }, options), pointer = null;
  box.classList.add("heat");
  var holder = box.appendChild(nclab.element("div", { class: "chart-area" }));
  var note = box.appendChild(nclab.element("div", { class: "note", text: " " }));
  var left = 26, top = 6;

  function cell(width) { return Math.min(64, (Math.min(width, 460) - left - 70) / view.size); }

  function draw(pen, width, height) {
    var paper = nclab.paper(), side = cell(width);
    pen.clearRect(0, 0, width, height);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (var row = 0; row < view.size; row++) {
      for (var column = 0; column < view.size; column++) {
        var raw = view.values[row * view.size + column];
        if (raw === null || raw === undefined) continue;
        var value = raw / view.fine, rgb = nclab.mix(paper.diverging, (value + 1) / 2);
        pen.fillStyle = "rgb(" + rgb.join(",") + ")";
        pen.fillRect(left + column * side, top + row * side, side - 1, side - 1);
        if (side >= 34) {
          pen.fillStyle = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140 ? "#1F2328" : "#FFFFFF";
          pen.font = "11px system-ui, sans-serif";
          pen.fillText(value.toFixed(2).replace("-", "−"), left + (column + 0.5) * side, top + (row + 0.5) * side);
        }
      }
    }
    pen.fillStyle = paper.muted;
    pen.font = "11px system-ui, sans-serif";
    var every = Math.max(1, Math.ceil(16 / side));
    for (var name = 0; name < view.size; name += every) {
      pen.fillText(String(name), left + (name + 0.5) * side, top + view.size * side + 10);
      pen.fillText(String(name), left - 12, top + (name + 0.5) * side);
    }
    var bar = left + view.size * side + 16, tall = view.size * side;
    for (var step = 0; step < tall; step++) {
      pen.fillStyle = "rgb(" + nclab.mix(paper.diverging, 1 - step / tall).join(",") + ")";
      pen.fillRect(bar, top + step, 10, 1.5);
    }
    pen.fillStyle = paper.muted;
    pen.textAlign = "left";
    [["1", 0], ["0", 0.5], ["−1", 1]].forEach(function (mark) { pen.fillText(mark[0], bar + 14, top + 4 + mark[1] * (tall - 8)); });
  }

  var surface = nclab.canvas(holder, function (width) { return top + view.size * cell(width) + 22; }, draw);
  surface.canvas.setAttribute("aria-label", "cosines between classes");
  surface.canvas.addEventListener("pointermove", function (event) {
    var side = cell(surface.width), row = Math.floor((event.offsetY - top) / side), column = Math.floor((event.offsetX - left) / side);
    pointer = row >= 0 && column >= 0 && row < view.size && column < view.size ? [row, column] : null;
    tell();
  });
  surface.canvas.addEventListener("pointerleave", function () { pointer = null; tell(); });

  function tell() {
    if (!pointer) { note.textContent = " "; return; }
    var value = view.values[pointer[0] * view.size + pointer[1]];
    var who = pointer[0] === pointer[1] ? "within class " + pointer[0] : "classes " + pointer[0] + " and " + pointer[1];
    note.textContent = who + ": " + (value === null || value === undefined ? "–" : (value / view.fine).toFixed(3).replace("-", "−"));
  }

  return {
    canvas: surface.canvas,
    update: function (changes) {
      Object.assign(view, changes);
      tell();
      surface.redraw();
    },
  };
};
