// Curves on a canvas: hundreds of thousands of points, bands, marks, and the values at the pointer.
"use strict";

nclab.ticks = (low, high, logarithmic, room) => {
  let found = [];
  const count = Math.max(2, Math.floor(room / 60));
  if (logarithmic) {
    // Whole decades if there are three or more, otherwise also marks between them, as many as fit.
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
    if (found.length >= 2) {
      const step = Math.ceil(found.length / most);
      return found.filter((_, place) => place % step === 0);
    }
    found = []; // fewer than two marks: choose marks as on a linear axis
  }
  const raw = (high - low) / (logarithmic ? 4 : count);
  const size = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 5, 10].find((mark) => mark * size >= raw) * size;
  for (let place = Math.ceil(low / unit); place * unit <= high + unit * 1e-9; place++)
    found.push(place === 0 ? 0 : Number((place * unit).toPrecision(15)));
  return found;
};

nclab.tickWords = (values) => {
  // As few digits as distinguish neighbouring marks; marks near 1 show their distance from 1.
  if (values.length < 2) return values.map((value) => nclab.number(value, 6));
  const plain = values.map((value) => nclab.number(value, 4));
  if (new Set(plain).size === values.length) return plain;
  let apart = Infinity;
  for (let at = 1; at < values.length; at++)
    apart = Math.min(apart, Math.abs(values[at] - values[at - 1]));
  const digits = Math.min(15, Math.max(0, Math.ceil(-Math.log10(apart) - 1e-9)));
  if (digits > 5 && values.every((value) => Math.abs(value - 1) < 1e-3))
    return values.map((value) => {
      const gap = Number((value - 1).toPrecision(6));
      if (Math.abs(gap) < apart / 2) return "1";
      return `1${gap < 0 ? "−" : "+"}${nclab.number(Math.abs(gap), 3)}`;
    });
  const largest = Math.max(...values.map(Math.abs));
  if (largest >= 1e-3 && largest < 1e5)
    return values.map((value) => value.toFixed(digits).replace("-", "−"));
  const more = Math.ceil(Math.log10(largest / apart)) + 1;
  return values.map((value) => nclab.number(value, Math.min(15, more)));
};

nclab.FEW = 12; // curves with at most so many points also show the points

nclab.thinned = (one, most, usable) => {
  // Indices of the points that are drawn, -1 for a gap. If there are too many points, draw the
  // lowest and the highest of each section, so that no peak is lost; the pointer reads all points.
  const places = [];
  const size = Math.max(1, Math.ceil((2 * one.x.length) / Math.max(2, most)));
  for (let from = 0; from < one.x.length; from += size) {
    let low = -1;
    let high = -1;
    for (let at = from; at < Math.min(from + size, one.x.length); at++) {
      if (!usable(one, at)) continue;
      if (low < 0 || one.y[at] < one.y[low]) low = at;
      if (high < 0 || one.y[at] > one.y[high]) high = at;
    }
    if (low < 0) places.push(-1);
    else if (low === high) places.push(low);
    else places.push(Math.min(low, high), Math.max(low, high));
  }
  return places;
};

nclab.chart = (box, options) => {
  // options: {height, xLabel, yLabel, log, xLog, xNames, xTicks, references, marks, until, empty,
  //   about, noLegend,
  //   series: [{label, x, y, low, high, colour, dash, width, faint, marks, quiet}]}
  // marks of a series: filled, hollow or cross, points without a line; quiet: not read by pointer.
  const view = Object.assign(
    { height: 300, series: [], references: [], marks: [], log: false, xLog: false, until: null },
    options,
  );
  const MOST = 50000; // points drawn of very many curves
  const hidden = {};
  let pointer = null;
  let frame = null;
  box.classList.add("chart");
  const holder = box.appendChild(nclab.element("div", { class: "chart-area" }));
  const tip = box.appendChild(nclab.element("div", { class: "chart-tip", hidden: "" }));
  const notes = box.appendChild(nclab.element("p", { class: "note chart-note", hidden: "" }));
  const legend = box.appendChild(nclab.element("div", { class: "legend" }));

  function shown() {
    return view.series.filter((one) => !hidden[one.label]);
  }

  function known(one, at) {
    const x = one.x[at];
    const y = one.y[at];
    if (x === null || x === undefined || y === null || y === undefined) return false;
    return view.until === null || x <= view.until;
  }

  function scales() {
    // Use a logarithmic axis if most values are positive; report the values that are left out.
    let count = 0;
    let x = 0;
    let y = 0;
    shown().forEach((one) => {
      for (let at = 0; at < one.x.length; at++) {
        if (!known(one, at)) continue;
        count++;
        if (one.x[at] <= 0) x++;
        if (one.y[at] <= 0) y++;
      }
    });
    const said = [];
    function scale(asked, low, name) {
      if (!asked || !count) return false;
      if (2 * low > count) {
        said.push(`${name} stays linear: ${low} of ${count} values are 0 or less.`);
        return false;
      }
      if (low) said.push(`Logarithmic ${name} leaves out ${low} of ${count} values: 0 or less.`);
      return true;
    }
    if (view.xLog && view.xNames) said.push("x stays as it is: names have no logarithm.");
    const found = {
      xLog: scale(view.xLog && !view.xNames, x, "x"),
      log: scale(view.log, y, "y"),
    };
    return Object.assign(found, { said: said.join(" ") });
  }

  function extent(log, xLog) {
    const bounds = { x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity };
    function reach(y) {
      if (y === null || y === undefined || (log && y <= 0)) return;
      if (y < bounds.y0) bounds.y0 = y;
      if (y > bounds.y1) bounds.y1 = y;
    }
    shown().forEach((one) => {
      for (let at = 0; at < one.x.length; at++) {
        const x = one.x[at];
        if (!known(one, at) || (log && one.y[at] <= 0) || (xLog && x <= 0)) continue;
        if (x < bounds.x0) bounds.x0 = x;
        if (x > bounds.x1) bounds.x1 = x;
        reach(one.y[at]);
        if (one.low) {
          reach(one.low[at]);
          reach(one.high[at]);
        }
      }
    });
    if (!Number.isFinite(bounds.x0)) return null;
    view.references.forEach((one) => {
      reach(one.y);
    });
    view.marks.forEach((one) => {
      if (!(xLog && one.x <= 0) && (view.until === null || one.x <= view.until)) {
        bounds.x0 = Math.min(bounds.x0, one.x);
        bounds.x1 = Math.max(bounds.x1, one.x);
      }
    });
    if (view.xNames) {
      bounds.x0 = -0.5;
      bounds.x1 = view.xNames.length - 0.5;
    } else if (bounds.x0 === bounds.x1) {
      bounds.only = bounds.x0;
      const gap = Math.abs(bounds.only) / 2 || 0.5;
      bounds.x0 -= gap;
      bounds.x1 += gap;
    }
    if (log) {
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

  function place(value, low, high, logarithmic) {
    if (!logarithmic) return (value - low) / (high - low);
    return (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low));
  }

  function xTicks(bounds, log, room) {
    // The only position, the requested positions, or round numbers.
    if (bounds.only !== undefined) return [bounds.only];
    if (view.xTicks?.length) return view.xTicks.filter((x) => x >= bounds.x0 && x <= bounds.x1);
    return nclab.ticks(bounds.x0, bounds.x1, log, room);
  }

  function layOut(pen, width, height) {
    // Reserve space for the labels of both axes.
    const how = scales();
    const bounds = extent(how.log, how.xLog);
    if (!bounds) return { said: how.said };
    const top = 10;
    const made = { bounds: bounds, top: top, log: how.log, xLog: how.xLog, said: how.said };
    made.yTicks = nclab.ticks(bounds.y0, bounds.y1, how.log, how.log ? height : height * 1.8);
    made.yWords = nclab.tickWords(made.yTicks);
    const widest = Math.max(0, ...made.yWords.map((words) => pen.measureText(words).width));
    made.left = Math.ceil(widest) + 12 + (view.yLabel ? 18 : 0);
    made.turned = false;
    if (view.xNames) {
      made.xTicks = view.xNames.map((_, at) => at);
      made.xWords = view.xNames.map((one) => (one.length > 20 ? `${one.slice(0, 19)}…` : one));
      const each = (width - made.left - 14) / view.xNames.length;
      made.turned = made.xWords.some((words) => pen.measureText(words).width > each - 6);
    } else {
      const room = width - made.left - 14;
      made.xTicks = xTicks(bounds, how.xLog, room * 0.8);
      made.xWords = nclab.tickWords(made.xTicks);
      const longest = Math.max(1, ...made.xWords.map((words) => pen.measureText(words).width));
      const every = Math.ceil(((longest + 12) * made.xTicks.length) / room);
      made.xTicks = made.xTicks.filter((_, at) => at % every === 0);
      made.xWords = made.xWords.filter((_, at) => at % every === 0);
    }
    const long = Math.max(0, ...made.xWords.map((words) => pen.measureText(words).width));
    made.bottom = 24 + (view.xLabel ? 15 : 0) + (made.turned ? Math.ceil(long * 0.6) : 0);
    made.right = view.xNames ? 14 : 10 + Math.ceil(long / 2);
    made.wide = Math.max(20, width - made.left - made.right);
    made.tall = Math.max(20, height - top - made.bottom);
    made.x = (value) => made.left + made.wide * place(value, bounds.x0, bounds.x1, how.xLog);
    made.y = (value) => top + made.tall * (1 - place(value, bounds.y0, bounds.y1, how.log));
    return made;
  }

  function paint(pen, width, height) {
    const paper = nclab.paper();
    pen.font = "11px system-ui, sans-serif";
    const made = layOut(pen, width, height);
    frame = made.bounds ? made : null;
    if (!frame) {
      pen.fillStyle = paper.muted;
      pen.textAlign = "center";
      pen.fillText(view.empty || "Nothing to draw yet.", width / 2, height / 2);
      return made;
    }
    paintAxes(pen, paper, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(frame.left - 4, frame.top - 4, frame.wide + 8, frame.tall + 8);
    pen.clip();
    view.references.forEach((one) => {
      paintReference(pen, one, paper);
    });
    view.marks.forEach((one) => {
      paintMark(pen, one);
    });
    const all = shown();
    all.forEach((one) => {
      if (one.low) paintBand(pen, one);
    });
    all.forEach((one) => {
      paintSeries(pen, one, all.length > 60 ? all.length : 0);
    });
    pen.restore();
    return made;
  }

  function paintAxes(pen, paper, width, height) {
    const { left, right, top, bottom } = frame;
    pen.strokeStyle = paper.grid;
    pen.fillStyle = paper.muted;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    frame.yTicks.forEach((value, at) => {
      const y = Math.round(frame.y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(left, y);
      pen.lineTo(width - right, y);
      pen.stroke();
      pen.fillText(frame.yWords[at], left - 7, y);
    });
    pen.textAlign = "center";
    pen.textBaseline = "top";
    frame.xTicks.forEach((value, at) => {
      const x = Math.round(frame.x(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, top);
      pen.lineTo(x, height - bottom);
      pen.stroke();
      pen.save();
      pen.translate(x, height - bottom + 6);
      if (frame.turned) {
        pen.rotate(-0.6);
        pen.textAlign = "right";
      }
      pen.fillText(frame.xWords[at], 0, 0);
      pen.restore();
    });
    pen.fillText(view.xLabel || "", left + frame.wide / 2, height - 14);
    if (!view.yLabel) return;
    pen.save();
    pen.translate(9, top + frame.tall / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    pen.fillText(view.yLabel, 0, 0);
    pen.restore();
  }

  function paintReference(pen, one, paper) {
    if (frame.log && one.y <= 0) return;
    const y = frame.y(one.y);
    pen.strokeStyle = paper.muted;
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(frame.left, y);
    pen.lineTo(frame.left + frame.wide, y);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = paper.muted;
    pen.textAlign = "left"; // on the left, because curves come near the line at the end of training
    pen.textBaseline = y < frame.top + 16 ? "top" : "bottom";
    pen.fillText(one.label, frame.left + 4, y + (y < frame.top + 16 ? 3 : -2));
  }

  function paintMark(pen, one) {
    // An alarm: a thin line with a triangle at the bottom.
    if ((frame.xLog && one.x <= 0) || (view.until !== null && one.x > view.until)) return;
    const x = frame.x(one.x);
    const foot = frame.top + frame.tall;
    pen.strokeStyle = pen.fillStyle = nclab.tone(one.severe ? "bad" : "good");
    pen.lineWidth = 1;
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(x, frame.top);
    pen.lineTo(x, foot);
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(x - 5, foot + 1);
    pen.lineTo(x + 5, foot + 1);
    pen.lineTo(x, foot - 8);
    pen.closePath();
    pen.fill();
  }

  function usable(one, at) {
    if (!known(one, at)) return false;
    return !(frame.log && one.y[at] <= 0) && !(frame.xLog && one.x[at] <= 0);
  }

  function paintBand(pen, one) {
    const inside = [];
    for (let at = 0; at < one.x.length; at++)
      if (usable(one, at) && one.low[at] !== null) inside.push(at);
    if (inside.length < 2) return;
    const least = frame.bounds.y0;
    const floor = (value) => frame.y(frame.log && value <= 0 ? least : value);
    pen.fillStyle = nclab.seriesColour(one);
    pen.globalAlpha = 0.16;
    pen.beginPath();
    inside.forEach((at, count) => {
      if (count) pen.lineTo(frame.x(one.x[at]), floor(one.high[at]));
      else pen.moveTo(frame.x(one.x[at]), floor(one.high[at]));
    });
    inside.reverse().forEach((at) => {
      pen.lineTo(frame.x(one.x[at]), floor(one.low[at]));
    });
    pen.closePath();
    pen.fill();
    pen.globalAlpha = 1;
  }

  function paintSeries(pen, one, many) {
    pen.strokeStyle = pen.fillStyle = nclab.seriesColour(one);
    pen.lineWidth = many ? 1 : one.width || 1.6;
    pen.globalAlpha = one.faint ? 0.35 : many ? 0.6 : 1;
    pen.lineJoin = many ? "bevel" : "round";
    pen.setLineDash(many ? [] : one.dash || []);
    const places = nclab.thinned(one, many ? MOST / many : Infinity, usable);
    const few = places.filter((at) => at >= 0).length <= nclab.FEW;
    const spots = [];
    let open = false;
    pen.beginPath();
    places.forEach((at, order) => {
      if (at < 0) {
        open = false; // a missing value leaves a gap
        return;
      }
      const x = frame.x(one.x[at]);
      const y = frame.y(one.y[at]);
      const alone = !((places[order - 1] ?? -1) >= 0 || (places[order + 1] ?? -1) >= 0);
      if (one.marks || few || alone) spots.push([x, y, at]);
      if (one.marks) return;
      if (open) pen.lineTo(x, y);
      else pen.moveTo(x, y);
      open = true;
    });
    if (!one.marks) pen.stroke();
    pen.setLineDash([]);
    if (one.marks || !many)
      spots.forEach((spot) => {
        paintSpot(pen, spot, one);
      });
    pen.globalAlpha = 1;
  }

  function paintSpot(pen, [x, y, at], one) {
    const kind = Array.isArray(one.marks) ? one.marks[at] : one.marks;
    const size = one.size || (kind ? 3.5 : 2.4);
    pen.beginPath();
    if (kind === "cross") {
      pen.lineWidth = 1.6;
      pen.moveTo(x - size, y - size);
      pen.lineTo(x + size, y + size);
      pen.moveTo(x - size, y + size);
      pen.lineTo(x + size, y - size);
      pen.stroke();
      return;
    }
    pen.arc(x, y, size, 0, 7);
    if (kind === "hollow") pen.stroke();
    else pen.fill();
  }

  function nearest(one, x) {
    // Index of the point nearest to x; the points are sorted by x.
    let low = 0;
    let high = one.x.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (one.x[middle] < x) low = middle + 1;
      else high = middle;
    }
    let best = -1;
    for (let at = Math.max(0, low - 2); at <= Math.min(one.x.length - 1, low + 2); at++)
      if (usable(one, at) && (best < 0 || Math.abs(one.x[at] - x) < Math.abs(one.x[best] - x)))
        best = at;
    return best;
  }

  function read() {
    // Values of all curves at the pointer; the nearest curve comes first.
    const { bounds } = frame;
    const share = (pointer.x - frame.left) / frame.wide;
    const x = frame.xLog
      ? bounds.x0 * (bounds.x1 / bounds.x0) ** share
      : bounds.x0 + share * (bounds.x1 - bounds.x0);
    let anchor = null;
    const found = [];
    shown().forEach((one) => {
      if (one.quiet) return;
      const at = nearest(one, x);
      if (at < 0) return;
      const off = Math.abs(frame.x(one.x[at]) - pointer.x);
      found.push({ one: one, at: at, off: off });
      if (!anchor || off < anchor.off) anchor = { off: off, x: one.x[at] };
    });
    if (!anchor) return null;
    const here = found.filter((each) => each.off < anchor.off + 12);
    here.forEach((each) => {
      each.y = each.one.y[each.at];
      each.far = Math.abs(frame.y(each.y) - pointer.y);
    });
    here.sort((one, other) => other.y - one.y);
    const near = here.reduce((best, each) => (each.far < best.far ? each : best), here[0]);
    return { x: anchor.x, here: here, near: near };
  }

  function paintPointer(pen) {
    pen.clearRect(0, 0, glass.width, glass.height);
    const found = pointer && frame ? read() : null;
    tip.hidden = !found;
    if (!found) return;
    const paper = nclab.paper();
    const x = frame.x(found.x);
    pen.strokeStyle = paper.muted;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, frame.top);
    pen.lineTo(x, frame.top + frame.tall);
    pen.stroke();
    (found.here.length > 40 ? [found.near] : found.here).forEach((each) => {
      pen.fillStyle = nclab.seriesColour(each.one);
      pen.strokeStyle = paper.background;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.arc(frame.x(each.one.x[each.at]), frame.y(each.y), 4, 0, 7);
      pen.fill();
      pen.stroke();
    });
    tell(found, x);
  }

  function tell(found, x) {
    const most = 12;
    const from = Math.max(
      0,
      Math.min(found.here.indexOf(found.near) - 5, found.here.length - most),
    );
    const rows = found.here.slice(from, from + most).map((each) => {
      const swatch = nclab.element("span", { class: "swatch" });
      swatch.style.borderTopColor = nclab.seriesColour(each.one);
      const words = [swatch, nclab.element("span", { class: "tip-name", text: each.one.label })];
      words.push(nclab.element("b", { text: nclab.close(each.y) }));
      return nclab.element(
        "div",
        { class: each === found.near ? "tip-row near" : "tip-row" },
        words,
      );
    });
    const at = view.xNames ? view.xNames[found.x] : nclab.number(found.x, 6);
    const head = nclab.element("div", { text: `${view.xLabel || "x"} ${at}` });
    const more = found.here.length - rows.length;
    const rest = more ? nclab.element("div", { text: `and ${more} more curves` }) : null;
    const said = view.marks
      .filter((one) => Math.abs(frame.x(one.x) - pointer.x) < 8)
      .slice(0, 4)
      .map((one) => nclab.element("div", { class: one.severe ? "bad" : "good", text: one.label }));
    tip.textContent = "";
    [head, ...rows, rest, ...said].forEach((part) => {
      if (part) tip.appendChild(part);
    });
    const right = x > frame.left + frame.wide / 2;
    tip.style.left = right ? "auto" : `${x + 12}px`;
    tip.style.right = right ? `${box.clientWidth - x + 12}px` : "auto";
    tip.style.top = `${frame.top}px`;
  }

  function draw(pen, width, height) {
    pen.clearRect(0, 0, width, height);
    const made = paint(pen, width, height);
    notes.textContent = made.said;
    notes.hidden = !made.said;
    glass.redraw();
  }

  const surface = nclab.canvas(holder, view.height, draw);
  const glass = nclab.canvas(holder, view.height, paintPointer);
  glass.canvas.className = "glass";
  glass.canvas.removeAttribute("role");
  glass.canvas.setAttribute("aria-hidden", "true");
  surface.canvas.tabIndex = 0;
  surface.canvas.addEventListener("pointermove", (event) => {
    pointer = { x: event.offsetX, y: event.offsetY };
    glass.redraw();
  });
  function leave() {
    pointer = null;
    tip.hidden = true;
    glass.redraw();
  }
  surface.canvas.addEventListener("pointerleave", leave);
  surface.canvas.addEventListener("blur", leave);
  surface.canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step || !frame) return;
    event.preventDefault();
    const middle = frame.top + frame.tall / 2;
    const from = pointer ? pointer.x : step > 0 ? frame.left : frame.left + frame.wide;
    const far = pointer ? (step * frame.wide) / 20 : 0;
    const x = Math.min(frame.left + frame.wide, Math.max(frame.left, from + far));
    pointer = { x: x, y: pointer ? pointer.y : middle };
    glass.redraw();
  });

  function describe() {
    const all = view.series.filter((one) => !one.quiet);
    const some = all.slice(0, 6).map((one) => {
      const last = one.y.reduce((found, y) => (y === null || y === undefined ? found : y), null);
      return `${one.label} ends at ${nclab.close(last)}`;
    });
    const more = all.length > 6 ? `; and ${all.length - 6} more curves` : "";
    const alarms = view.marks.length ? `; ${view.marks.length} alarms` : "";
    const what = view.about || view.yLabel || "chart";
    const words = `${what} over ${view.xLabel || "x"}: ${some.join("; ")}${more}${alarms}`;
    surface.canvas.setAttribute("aria-label", all.length ? words : `${what}: nothing to draw yet`);
  }

  function fillLegend() {
    legend.textContent = "";
    const named = view.series.filter((one) => one.label && !one.quiet);
    if (view.noLegend || named.length > 40) return;
    named.forEach((one) => {
      const button = nclab.element(
        "button",
        {
          type: "button",
          class: "legend-entry",
          "aria-pressed": hidden[one.label] ? "false" : "true",
          title: "Show or hide",
        },
        [nclab.swatch(one), nclab.element("span", { text: one.label })],
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
  describe();

  return {
    canvas: surface.canvas,
    view: view,
    paint: paint,
    update: (changes, sameLegend) => {
      Object.assign(view, changes);
      if (changes.series && !sameLegend) fillLegend();
      describe();
      surface.canvas.dataset.points = view.series.reduce((sum, one) => sum + one.x.length, 0);
      surface.redraw();
    },
  };
};

nclab.swatch = (one) => {
  const cross = one.marks === "cross";
  const swatch = nclab.element("span", { class: one.marks && !cross ? "swatch dot" : "swatch" });
  if (cross) {
    swatch.className = "swatch cross";
    swatch.textContent = "×";
    swatch.style.color = nclab.seriesColour(one);
    return swatch;
  }
  swatch.style.borderTopColor = nclab.seriesColour(one);
  if (!one.marks && one.dash?.length)
    swatch.style.borderTopStyle = one.dash[0] > 3 ? "dashed" : "dotted";
  return swatch;
};

nclab.seriesColour = (one) => (one.ink ? nclab.paper().ink : nclab.line(one.colour || 0));

nclab.tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);

nclab.close = (value) => {
  // Text of a value; values near 1 are shown as their distance from 1.
  if (typeof value !== "number" || Math.abs(1 - value) >= 1e-3 || value === 1)
    return nclab.number(value, 5);
  return `1${value < 1 ? "−" : "+"}${nclab.number(Math.abs(1 - value), 2)}`;
};
