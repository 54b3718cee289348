// Curves on a canvas: tens of thousands of points at once, with the numbers under the pointer.
"use strict";

nclab.ticks = (low, high, logarithmic, room) => {
  let found = [];
  const count = Math.max(2, Math.floor(room / 60));
  if (logarithmic) {
    // Whole decades where there are three or more, else marks between them; as many as have room.
    const first = Math.floor(Math.log10(low));
    const last = Math.ceil(Math.log10(high));
    const most = Math.max(2, Math.floor(room / 30));
    [[1], [1, 3], [1, 2, 5], [1, 2, 3, 5, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9]].some((marks) => {
      found = [];
      for (let power = first; power <= last; power++)
        marks.forEach((mark) => {
          found.push(Number(`${mark}e${power}`));
        });
      found = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
      return found.length >= 3;
    });
    const step = Math.ceil(found.length / most);
    return found.filter((_, place) => place % step === 0);
  }
  const raw = (high - low) / count;
  const size = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 5, 10].find((mark) => mark * size >= raw) * size;
  for (let value = Math.ceil(low / unit) * unit; value <= high + unit * 1e-9; value += unit)
    found.push(Math.abs(value) < unit * 1e-9 ? 0 : value);
  return found;
};

nclab.chart = (box, options) => {
  // options: {height, xLabel, xNames, yLabel, log, xLog, references, until,
  //   series: [{label, x, y, colour, dash, marks}]}
  const view = Object.assign(
    { height: 300, series: [], references: [], log: false, xLog: false, until: null },
    options,
  );
  const hidden = {};
  let pointer = null;
  let frame = null;
  box.classList.add("chart");
  const holder = box.appendChild(nclab.element("div", { class: "chart-area" }));
  const tip = box.appendChild(nclab.element("div", { class: "chart-tip", hidden: "" }));
  const legend = box.appendChild(nclab.element("div", { class: "legend" }));

  function shown() {
    return view.series.filter((one) => !hidden[one.label]);
  }

  function extent() {
    const bounds = { x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity };
    shown().forEach((one) => {
      for (let place = 0; place < one.x.length; place++) {
        const x = one.x[place];
        const y = one.y[place];
        if (x === null || y === null || y === undefined) continue;
        if (view.until !== null && x > view.until) continue;
        if ((view.log && y <= 0) || (view.xLog && x <= 0)) continue;
        if (x < bounds.x0) bounds.x0 = x;
        if (x > bounds.x1) bounds.x1 = x;
        if (y < bounds.y0) bounds.y0 = y;
        if (y > bounds.y1) bounds.y1 = y;
      }
    });
    if (!Number.isFinite(bounds.x0)) return null;
    view.references.forEach((one) => {
      if (one.y === undefined || (view.log && one.y <= 0)) return;
      bounds.y0 = Math.min(bounds.y0, one.y);
      bounds.y1 = Math.max(bounds.y1, one.y);
    });
    if (bounds.x0 === bounds.x1) {
      bounds.x0 -= 0.5;
      bounds.x1 += 0.5;
    }
    if (view.log) {
      const wide = bounds.y1 / bounds.y0 < 1.05 ? 1.5 : (bounds.y1 / bounds.y0) ** 0.04;
      bounds.y0 /= wide;
      bounds.y1 *= wide;
    } else {
      const gap = bounds.y1 - bounds.y0 || Math.abs(bounds.y1) * 0.1 || 1;
      bounds.y0 -= 0.05 * gap;
      bounds.y1 += 0.05 * gap;
    }
    return bounds;
  }

  function onAxis(value) {
    // What stands for a value of x: its name, where it has one.
    if (!view.xNames) return nclab.number(value, 6);
    return Number.isInteger(value) ? (view.xNames[value] ?? "") : "";
  }

  function place(value, low, high, logarithmic) {
    if (!logarithmic) return (value - low) / (high - low);
    return (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low));
  }

  function draw(pen, width, height) {
    const paper = nclab.paper();
    const bounds = extent();
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    frame = null;
    if (!bounds) {
      pen.fillStyle = paper.muted;
      pen.textAlign = "center";
      pen.fillText(view.empty || "Nothing to draw yet.", width / 2, height / 2);
      return;
    }
    const left = 58;
    const right = 14;
    const top = 10;
    const bottom = 38;
    frame = {
      left: left,
      top: top,
      wide: width - left - right,
      tall: height - top - bottom,
      bounds: bounds,
    };
    frame.x = (value) => left + frame.wide * place(value, bounds.x0, bounds.x1, view.xLog);
    frame.y = (value) => top + frame.tall * (1 - place(value, bounds.y0, bounds.y1, view.log));
    pen.strokeStyle = paper.grid;
    pen.fillStyle = paper.muted;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    nclab.ticks(bounds.y0, bounds.y1, view.log, frame.tall * 1.5).forEach((value) => {
      const y = Math.round(frame.y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(left, y);
      pen.lineTo(width - right, y);
      pen.stroke();
      pen.fillText(nclab.number(value, 3), left - 7, y);
    });
    pen.textAlign = "center";
    pen.textBaseline = "top";
    nclab.ticks(bounds.x0, bounds.x1, view.xLog, frame.wide * 0.8).forEach((value) => {
      const x = Math.round(frame.x(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, top);
      pen.lineTo(x, height - bottom);
      pen.stroke();
      pen.fillText(onAxis(value), x, height - bottom + 6);
    });
    pen.fillText(view.xLabel || "", left + frame.wide / 2, height - 15);
    pen.save();
    pen.translate(11, top + frame.tall / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    pen.fillText(view.yLabel || "", 0, 0);
    pen.restore();
    pen.save();
    pen.beginPath();
    pen.rect(left, top - 2, frame.wide + 4, frame.tall + 4);
    pen.clip();
    view.references.forEach((one) => {
      drawReference(pen, one, paper, width - right);
    });
    shown().forEach((one) => {
      drawSeries(pen, one);
    });
    pen.restore();
    if (pointer) drawPointer(pen, paper);
  }

  function drawReference(pen, one, paper, end) {
    if (view.log && one.y <= 0) return;
    const y = frame.y(one.y);
    pen.strokeStyle = paper.muted;
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(frame.left, y);
    pen.lineTo(end, y);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = paper.muted;
    pen.textAlign = "left"; // where training begins: at its end the curves come near the line
    pen.textBaseline = y < frame.top + 16 ? "top" : "bottom";
    pen.fillText(one.label, frame.left + 4, y + (y < frame.top + 16 ? 3 : -2));
  }

  function usable(one, at) {
    const x = one.x[at];
    const y = one.y[at];
    if (x === null || y === null || y === undefined) return false;
    return (
      !(view.log && y <= 0) && !(view.xLog && x <= 0) && !(view.until !== null && x > view.until)
    );
  }

  function drawSeries(pen, one) {
    pen.strokeStyle = pen.fillStyle = nclab.seriesColour(one);
    pen.lineWidth = one.width || 1.6;
    pen.setLineDash(one.dash || []);
    pen.lineJoin = "round";
    let open = false;
    let count = 0;
    let x = 0;
    let y = 0;
    if (!one.marks) {
      pen.beginPath();
      for (let at = 0; at < one.x.length; at++) {
        if (!usable(one, at)) {
          open = false;
          continue;
        }
        x = frame.x(one.x[at]);
        y = frame.y(one.y[at]);
        if (open) pen.lineTo(x, y);
        else pen.moveTo(x, y);
        open = true;
        count++;
      }
      pen.stroke();
    }
    pen.setLineDash([]);
    if (count === 1) {
      pen.beginPath();
      pen.arc(x, y, 2.5, 0, 7);
      pen.fill();
    }
    if (one.marks) {
      for (let at = 0; at < one.x.length; at++) {
        if (!usable(one, at)) continue;
        pen.beginPath();
        pen.arc(frame.x(one.x[at]), frame.y(one.y[at]), 3.5, 0, 7);
        if (one.marks === "hollow") pen.stroke();
        else pen.fill();
      }
    }
  }

  function nearest() {
    let best = null;
    let least = 900;
    shown().forEach((one) => {
      for (let at = 0; at < one.x.length; at++) {
        if (!usable(one, at)) continue;
        const dx = frame.x(one.x[at]) - pointer.x;
        const dy = frame.y(one.y[at]) - pointer.y;
        const far = dx * dx + dy * dy;
        if (far < least) {
          least = far;
          best = { one: one, at: at };
        }
      }
    });
    return best;
  }

  function drawPointer(pen, paper) {
    const found = nearest();
    tip.hidden = !found;
    if (!found) return;
    const x = frame.x(found.one.x[found.at]);
    const y = frame.y(found.one.y[found.at]);
    pen.fillStyle = nclab.seriesColour(found.one);
    pen.strokeStyle = paper.background;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(x, y, 4.5, 0, 7);
    pen.fill();
    pen.stroke();
    tip.textContent =
      `${found.one.label}\n${view.xLabel || "x"} ` +
      `${onAxis(found.one.x[found.at])}\n${nclab.number(found.one.y[found.at], 6)}`;
    tip.style.left = `${Math.min(x + 14, frame.left + frame.wide - 150)}px`;
    tip.style.top = `${Math.max(0, y - 50)}px`;
  }

  const surface = nclab.canvas(holder, view.height, draw);
  surface.canvas.addEventListener("pointermove", (event) => {
    pointer = { x: event.offsetX, y: event.offsetY };
    surface.redraw();
  });
  surface.canvas.addEventListener("pointerleave", () => {
    pointer = null;
    tip.hidden = true;
    surface.redraw();
  });

  function fillLegend() {
    legend.textContent = "";
    if (view.noLegend) return;
    view.series.forEach((one) => {
      if (!one.label) return;
      const swatch = nclab.element("span", { class: "swatch" });
      swatch.style.borderTopColor = nclab.seriesColour(one);
      if (one.marks) swatch.className = "swatch dot";
      else if (one.dash?.length)
        swatch.style.borderTopStyle = one.dash[0] > 3 ? "dashed" : "dotted";
      const button = nclab.element(
        "button",
        {
          type: "button",
          class: "legend-entry",
          "aria-pressed": hidden[one.label] ? "false" : "true",
          title: "Show or hide",
        },
        [swatch, nclab.element("span", { text: one.label })],
      );
      button.addEventListener("click", () => {
        hidden[one.label] = !hidden[one.label];
        button.setAttribute("aria-pressed", hidden[one.label] ? "false" : "true");
        surface.redraw();
      });
      legend.appendChild(button);
    });
  }
  nclab.onTheme(fillLegend);
  fillLegend();

  return {
    canvas: surface.canvas,
    view: view,
    update: (changes, sameLegend) => {
      Object.assign(view, changes);
      if (changes.series && !sameLegend) fillLegend();
      surface.canvas.dataset.points = view.series.reduce((sum, one) => sum + one.x.length, 0);
      surface.redraw();
    },
  };
};

nclab.seriesColour = (one) => (one.ink ? nclab.paper().ink : nclab.line(one.colour || 0));
