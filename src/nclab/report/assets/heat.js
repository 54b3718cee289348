// The cosines between classes as a heat map.
"use strict";

nclab.mix = (stops, share) => {
  // Interpolate a colour scale; share is from 0 to 1.
  const place = Math.min(1, Math.max(0, share));
  let at = 1;
  while (at < stops.length - 1 && stops[at][0] < place) at++;
  const low = stops[at - 1];
  const high = stops[at];
  const part = (place - low[0]) / (high[0] - low[0] || 1);
  function channel(colour, from) {
    return parseInt(colour.slice(from, from + 2), 16);
  }
  return [1, 3, 5].map((from) =>
    Math.round(channel(low[1], from) + part * (channel(high[1], from) - channel(low[1], from))),
  );
};

nclab.heatMap = (box, options) => {
  // options: {size, fine, values, names}
  const view = Object.assign({ values: [] }, options);
  let pointer = null;
  box.classList.add("heat");
  const holder = box.appendChild(nclab.element("div", { class: "chart-area" }));
  const note = box.appendChild(nclab.element("div", { class: "note", text: " " }));
  const top = 6;
  const longest = Math.max(...Array.from({ length: view.size }, (_, at) => called(at).length));
  const left = Math.min(110, 12 + 7 * longest);

  function called(place) {
    return view.names ? view.names[place] : String(place);
  }

  function turned(side) {
    return 7 * Math.min(14, longest) > side;
  }

  function cell(width) {
    return Math.min(64, (Math.min(width, 460) - left - 70) / view.size);
  }

  function draw(pen, width, height) {
    const paper = nclab.paper();
    const side = cell(width);
    pen.clearRect(0, 0, width, height);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let row = 0; row < view.size; row++) {
      for (let column = 0; column < view.size; column++) {
        const raw = view.values[row * view.size + column];
        if (raw === null || raw === undefined) continue;
        const value = raw / view.fine;
        const rgb = nclab.mix(paper.diverging, (value + 1) / 2);
        pen.fillStyle = `rgb(${rgb.join(",")})`;
        pen.fillRect(left + column * side, top + row * side, side - 1, side - 1);
        if (side >= 34) {
          pen.fillStyle =
            0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140 ? "#1F2328" : "#FFFFFF";
          pen.font = "11px system-ui, sans-serif";
          pen.fillText(
            value.toFixed(2).replace("-", "−"),
            left + (column + 0.5) * side,
            top + (row + 0.5) * side,
          );
        }
      }
    }
    pen.fillStyle = paper.muted;
    pen.font = "11px system-ui, sans-serif";
    const every = Math.max(1, Math.ceil(16 / side));
    const cut = (name) =>
      called(name).length > 14 ? `${called(name).slice(0, 13)}…` : called(name);
    for (let name = 0; name < view.size; name += every) {
      // Long names at the bottom are rotated; the full name is shown below the map.
      pen.textAlign = "right";
      pen.fillText(cut(name), left - 6, top + (name + 0.5) * side);
      pen.save();
      pen.translate(left + (name + 0.5) * side, top + view.size * side + 9);
      if (turned(side)) pen.rotate(-0.7);
      else pen.textAlign = "center";
      pen.fillText(cut(name), 0, 0);
      pen.restore();
    }
    const bar = left + view.size * side + 16;
    const tall = view.size * side;
    for (let step = 0; step < tall; step++) {
      pen.fillStyle = `rgb(${nclab.mix(paper.diverging, 1 - step / tall).join(",")})`;
      pen.fillRect(bar, top + step, 10, 1.5);
    }
    pen.fillStyle = paper.muted;
    pen.textAlign = "left";
    [
      ["1", 0],
      ["0", 0.5],
      ["−1", 1],
    ].forEach((mark) => {
      pen.fillText(mark[0], bar + 14, top + 4 + mark[1] * (tall - 8));
    });
  }

  function height(width) {
    const words = turned(cell(width)) ? 5 * Math.min(14, longest) : 0;
    return top + view.size * cell(width) + 22 + words;
  }

  const surface = nclab.canvas(holder, height, draw);
  surface.canvas.setAttribute("aria-label", "cosines between classes");
  surface.canvas.addEventListener("pointermove", (event) => {
    const side = cell(surface.width);
    const row = Math.floor((event.offsetY - top) / side);
    const column = Math.floor((event.offsetX - left) / side);
    pointer =
      row >= 0 && column >= 0 && row < view.size && column < view.size ? [row, column] : null;
    tell();
  });
  surface.canvas.addEventListener("pointerleave", () => {
    pointer = null;
    tell();
  });

  function tell() {
    if (!pointer) {
      note.textContent = " ";
      return;
    }
    const value = view.values[pointer[0] * view.size + pointer[1]];
    const who =
      pointer[0] === pointer[1]
        ? `within class ${called(pointer[0])}`
        : `classes ${called(pointer[0])} and ${called(pointer[1])}`;
    const known = value !== null && value !== undefined;
    const shown = known ? (value / view.fine).toFixed(3).replace("-", "−") : "–";
    note.textContent = `${who}: ${shown}`;
  }

  return {
    canvas: surface.canvas,
    update: (changes) => {
      Object.assign(view, changes);
      tell();
      surface.redraw();
    },
  };
};
