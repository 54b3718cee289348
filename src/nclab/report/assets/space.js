// The 3-D picture of neural collapse: drag to rotate; frames between measurements are interpolated.
"use strict";

nclab.space = (box, options) => {
  // options: {fine, names, frames: [{epoch, share, labels, points, means, weights, etf}]}
  const view = Object.assign({ at: 0, turn: 0.7, tilt: 0.28, zoom: 1 }, options);
  const shows = { points: true, means: true, weights: true, etf: true };
  box.classList.add("space");
  const holder = box.appendChild(nclab.element("div", { class: "chart-area" }));

  function between(name, floor, part) {
    // Interpolate between two measurements, if both have the same points.
    const one = view.frames[floor][name];
    const other = (view.frames[floor + 1] || view.frames[floor])[name];
    if (part === 0 || one.length !== other.length) return one;
    const mixed = new Float64Array(one.length);
    for (let place = 0; place < one.length; place++)
      mixed[place] = one[place] + part * (other[place] - one[place]);
    return mixed;
  }

  function draw(pen, width, height) {
    const paper = nclab.paper();
    pen.clearRect(0, 0, width, height);
    if (!view.frames.length) return;
    const at = Math.min(view.frames.length - 1, Math.max(0, view.at));
    const floor = Math.floor(at);
    const part = at - floor;
    const frame = view.frames[floor];
    const sine = Math.sin(view.turn);
    const cosine = Math.cos(view.turn);
    const up = Math.sin(view.tilt);
    const along = Math.cos(view.tilt);
    const next = view.frames[floor + 1] || frame;
    const room = extent(frame) * (1 - part) + extent(next) * part;
    const size = (0.36 * Math.min(width, height) * view.zoom) / room / view.fine;
    function project(list, place) {
      const x = list[3 * place];
      const y = list[3 * place + 1];
      const z = list[3 * place + 2];
      const right = cosine * x - sine * y;
      const deep = sine * x + cosine * y;
      const far = along * deep - up * z;
      const high = up * deep + along * z;
      // The maximum keeps every point in front of the viewer.
      const close = 4.5 / Math.max(1.5, 4.5 + far / view.fine / room);
      return {
        x: width / 2 + right * size * close,
        y: height / 2 - high * size * close,
        far: far,
        close: close,
      };
    }
    const things = [];
    const middle = project([0, 0, 0], 0);
    function each(name, drawOne) {
      if (!shows[name] || !frame[name]) return;
      const list = between(name, floor, part);
      for (let at = 0; at < list.length / 3; at++) {
        const where = project(list, at);
        things.push({ far: where.far, draw: () => drawOne(where, at) });
      }
    }
    if (shows.etf) drawEdges(pen, paper, frame, project);
    each("points", (where, at) => {
      pen.fillStyle = nclab.line(frame.labels[at]);
      pen.globalAlpha = 0.55;
      disc(pen, where, 2.3 * where.close);
      pen.fill();
    });
    each("etf", (where) => {
      pen.strokeStyle = paper.muted;
      pen.lineWidth = 1.4;
      disc(pen, where, 8 * where.close);
      pen.stroke();
    });
    each("weights", (where, at) => {
      ray(pen, middle, where, nclab.line(classOf(frame, at)), 1.4, [4, 3]);
      diamond(pen, where, 5 * where.close);
      pen.fillStyle = paper.background;
      pen.fill();
      pen.stroke();
    });
    each("means", (where, at) => {
      ray(pen, middle, where, nclab.line(classOf(frame, at)), 2.2, []);
      pen.fillStyle = nclab.line(classOf(frame, at));
      disc(pen, where, 5 * where.close);
      pen.fill();
      pen.fillStyle = paper.ink;
      pen.font = "11px system-ui, sans-serif";
      pen.fillText(nameOf(classOf(frame, at)), where.x + 8, where.y - 8);
    });
    things.sort((one, other) => other.far - one.far);
    things.forEach((thing) => {
      pen.globalAlpha = 1;
      thing.draw();
    });
    pen.globalAlpha = 1;
    surface.canvas.dataset.frame = floor;
    surface.canvas.dataset.turn = view.turn.toFixed(4);
    surface.canvas.dataset.drawn = things.length;
  }

  function extent(frame) {
    // Radius of the picture: that of the simplex, or of most features while they are spread out.
    if (frame.extent) return frame.extent;
    const corners = norms(frame.etf);
    const features = norms(frame.points).sort((one, other) => one - other);
    const simplex =
      Math.sqrt(corners.reduce((sum, one) => sum + one * one, 0) / (corners.length || 1)) || 1;
    const most = features.length ? features[Math.floor(0.85 * (features.length - 1))] : 0;
    frame.extent = Math.max(simplex, most / 1.35);
    return frame.extent;
  }

  function norms(list) {
    const found = [];
    for (let place = 0; place < list.length; place += 3)
      found.push(Math.hypot(list[place], list[place + 1], list[place + 2]) / view.fine);
    return found;
  }

  function classOf(frame, at) {
    if (!frame.present) frame.present = Array.from(new Set(frame.labels)).sort((a, b) => a - b);
    return frame.present[at] === undefined ? at : frame.present[at];
  }

  function nameOf(own) {
    return view.names?.[own] ?? String(own);
  }

  function drawEdges(pen, paper, frame, project) {
    // Edges of the simplex, if it has at most six corners.
    const many = frame.etf.length / 3;
    if (many > 6) return;
    pen.strokeStyle = paper.muted;
    pen.globalAlpha = 0.45;
    pen.lineWidth = 1;
    pen.setLineDash([3, 4]);
    for (let one = 0; one < many; one++)
      for (let other = one + 1; other < many; other++) {
        const from = project(frame.etf, one);
        const to = project(frame.etf, other);
        pen.beginPath();
        pen.moveTo(from.x, from.y);
        pen.lineTo(to.x, to.y);
        pen.stroke();
      }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  function disc(pen, where, size) {
    pen.beginPath();
    pen.arc(where.x, where.y, size, 0, 7);
  }

  function diamond(pen, where, size) {
    pen.beginPath();
    pen.moveTo(where.x, where.y - size);
    pen.lineTo(where.x + size, where.y);
    pen.lineTo(where.x, where.y + size);
    pen.lineTo(where.x - size, where.y);
    pen.closePath();
  }

  function ray(pen, from, to, colour, width, dash) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.lineTo(to.x, to.y);
    pen.stroke();
    pen.setLineDash([]);
  }

  const surface = nclab.canvas(holder, (width) => Math.min(440, Math.max(260, width * 0.8)), draw);
  surface.canvas.tabIndex = 0;
  surface.canvas.setAttribute(
    "aria-label",
    "features, class means, classifiers and simplex in three dimensions; arrow keys turn it",
  );
  let held = null;
  surface.canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, y: event.clientY };
    surface.canvas.setPointerCapture(event.pointerId);
  });
  surface.canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    turn((event.clientX - held.x) * 0.01, (event.clientY - held.y) * 0.01);
    held = { x: event.clientX, y: event.clientY };
  });
  ["pointerup", "pointercancel"].forEach((name) => {
    surface.canvas.addEventListener(name, () => {
      held = null;
    });
  });
  surface.canvas.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: [-0.1, 0],
      ArrowRight: [0.1, 0],
      ArrowUp: [0, -0.1],
      ArrowDown: [0, 0.1],
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    turn(moves[event.key][0], moves[event.key][1]);
  });
  surface.canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      view.zoom = Math.min(4, Math.max(0.4, view.zoom * Math.exp(-event.deltaY * 0.002)));
      surface.redraw();
    },
    { passive: false },
  );

  function turn(across, upwards) {
    view.turn += across;
    view.tilt = Math.min(1.5, Math.max(-1.5, view.tilt + upwards));
    surface.redraw();
  }

  const keys = box.appendChild(nclab.element("div", { class: "legend" }));
  [
    ["points", "features"],
    ["means", "class means"],
    ["weights", "classifiers"],
    ["etf", "simplex ETF"],
  ].forEach((one) => {
    const button = nclab.element(
      "button",
      { type: "button", class: "legend-entry", "aria-pressed": "true", title: "Show or hide" },
      [
        nclab.element("span", { class: `glyph ${one[0]}` }),
        nclab.element("span", { text: one[1] }),
      ],
    );
    button.addEventListener("click", () => {
      shows[one[0]] = !shows[one[0]];
      button.setAttribute("aria-pressed", String(shows[one[0]]));
      surface.redraw();
    });
    keys.appendChild(button);
  });

  return {
    canvas: surface.canvas,
    view: view,
    turn: turn,
    update: (changes) => {
      Object.assign(view, changes);
      surface.redraw();
    },
  };
};

nclab.player = (box, options) => {
  // Play, pause and scrub over frames. options: {count, label(at), show(at), seconds, spin()}
  const view = Object.assign({ count: 1, seconds: 8 }, options);
  let playing = false;
  let at = view.count - 1;
  let then = 0;
  const button = nclab.element("button", { type: "button", class: "play", text: "▶ Play" });
  const slider = nclab.element("input", {
    type: "range",
    min: 0,
    max: Math.max(0, view.count - 1),
    step: "any",
    value: at,
    "aria-label": "moment of training",
  });
  const words = nclab.element("span", { class: "moment" });
  box.classList.add("player");
  [button, slider, words].forEach((part) => {
    box.appendChild(part);
  });

  function show() {
    button.hidden = slider.hidden = view.count < 2; // a single frame cannot be played
    slider.value = at;
    words.textContent = view.label(Math.min(view.count - 1, Math.round(at)));
    view.show(at);
  }
  function move(now) {
    if (!playing) return;
    // The time of the first frame may be before the click.
    const passed = Math.min(0.1, Math.max(0, (now - then) / 1000));
    then = now;
    at += (passed * Math.max(1, view.count - 1)) / view.seconds;
    if (at >= view.count - 1) {
      at = view.count - 1;
      play(false);
    }
    show();
    if (playing) window.requestAnimationFrame(move);
  }
  function play(on) {
    playing = on;
    button.textContent = on ? "❚❚ Pause" : "▶ Play";
    if (!on) return;
    if (at >= view.count - 1) at = 0;
    then = performance.now();
    window.requestAnimationFrame(move);
  }
  button.addEventListener("click", () => {
    play(!playing);
  });
  slider.addEventListener("input", () => {
    play(false);
    at = Number(slider.value);
    show();
  });
  show();
  return {
    atEnd: () => at >= view.count - 1,
    update: (changes) => {
      const end = at >= view.count - 1;
      Object.assign(view, changes);
      slider.max = Math.max(0, view.count - 1);
      if (end && !playing) at = view.count - 1;
      at = Math.min(at, view.count - 1);
      show();
    },
  };
};
