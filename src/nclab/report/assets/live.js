// The live page: many runs on one chart, growing while they train; pause it, or go back in time.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("run-list");
  if (!list) return;
  const root = document.body.dataset.live;
  let runs = [];
  let curves = {};
  const chosen = {};
  let line = null;
  let paused = false;
  const metric = document.getElementById("metric");
  const layer = document.getElementById("layer");
  const place = document.getElementById("place");
  const log = document.getElementById("log");
  const filter = document.getElementById("run-filter");
  const pause = document.getElementById("pause");
  const scrub = document.getElementById("scrub");
  const until = document.getElementById("until");
  const status = document.getElementById("status");
  const chart = nclab.chart(document.getElementById("live-chart"), {
    height: 430,
    noLegend: true,
    empty: "Waiting for measurements.",
  });
  nclab.live = { chart: chart };

  function choices(select, values, names) {
    const before = select.value;
    const same =
      Array.from(select.options)
        .map((one) => one.value)
        .join("\n") === values.join("\n");
    if (same) return;
    select.textContent = "";
    values.forEach((value, at) => {
      select.appendChild(
        nclab.element("option", { value: value, text: names ? names[at] : value }),
      );
    });
    if (values.indexOf(before) >= 0) select.value = before;
  }

  function union(name) {
    const seen = {};
    const found = [];
    runs.forEach((run) => {
      run[name].forEach((one) => {
        if (!seen[one]) {
          seen[one] = true;
          found.push(one);
        }
      });
    });
    return found;
  }

  function fillControls(chosenThere) {
    const metrics = union("metrics");
    const layers = union("layers");
    const fresh = !metric.options.length;
    choices(metric, metrics);
    // Whoever had none takes over the one that the server has chosen.
    if (fresh && metrics.indexOf(chosenThere) >= 0) metric.value = chosenThere;
    choices(
      layer,
      ["last", "every"].concat(layers.map((one) => `=${one}`)),
      ["last layer", "every layer"].concat(layers),
    );
  }

  function fillList() {
    const needle = filter.value.toLowerCase();
    list.textContent = "";
    runs.forEach((run, at) => {
      if (chosen[run.slug] === undefined) chosen[run.slug] = true;
      if (needle && `${run.name} ${run.path}`.toLowerCase().indexOf(needle) < 0) return;
      const box = nclab.element("input", { type: "checkbox", "aria-label": `show ${run.name}` });
      box.checked = chosen[run.slug];
      box.addEventListener("change", () => {
        chosen[run.slug] = box.checked;
        draw();
      });
      const swatch = nclab.element("span", { class: "swatch" });
      swatch.style.borderTopColor = nclab.line(at);
      const bar = nclab.element("span", { class: "bar" }, [nclab.element("span")]);
      bar.firstChild.style.width = `${Math.round(100 * (run.progress || 0))}%`;
      list.appendChild(
        nclab.element("li", { "data-run": run.slug }, [
          nclab.element("label", {}, [
            box,
            swatch,
            nclab.element("span", { class: "run-name", text: run.name, title: run.path }),
          ]),
          nclab.element("a", {
            href: `${root}runs/${encodeURIComponent(run.slug)}.html`,
            text: "open",
          }),
          nclab.element("span", { class: `state ${run.state}`, text: run.state }),
          bar,
        ]),
      );
    });
  }

  function series() {
    const made = [];
    runs.forEach((run, at) => {
      if (!chosen[run.slug]) return;
      (curves[run.slug] || []).forEach((curve, number) => {
        // Curves of other data than those of training have a name of their own.
        const several = layer.value === "every" || curves[run.slug].length > 1;
        const label = curve.layer && several ? `${run.name} · ${curve.layer}` : run.name;
        made.push({
          label: label,
          x: curve.x,
          y: curve.y,
          colour: layer.value === "every" && runs.length === 1 ? number : at,
          dash: several ? nclab.dashes[number % nclab.dashes.length] : nclab.dash(at),
          width: 1.4,
        });
      });
    });
    return made;
  }

  function last(all) {
    return all.reduce(
      (most, one) => (one.x.length ? Math.max(most, one.x[one.x.length - 1]) : most),
      0,
    );
  }

  function draw() {
    const all = series();
    const end = last(all);
    const back = Number(scrub.value) / 1000;
    const cut = back >= 1 ? null : back * end;
    const positive = all.every((one) => one.y.every((y) => y === null || y > 0));
    until.textContent = cut === null ? "now" : `${place.value} ${nclab.number(cut, 4)}`;
    chart.update(
      {
        series: all,
        until: cut,
        log: log.checked && positive,
        xLabel: place.value,
        yLabel: metric.value,
      },
      true,
    );
    const going = runs.filter((run) => run.state === "running").length;
    status.textContent = `${runs.length} runs, ${going} running${paused ? " · paused" : ""}`;
  }

  function take(message) {
    if (message.runs) {
      runs = message.runs;
      fillControls(message.metric);
      fillList();
      if (message.metric && message.metric !== metric.value) return connect();
    }
    Object.keys(message.curves || {}).forEach((slug) => {
      curves[slug] = message.curves[slug];
    });
    draw();
    return undefined;
  }

  function open() {
    if (paused) return null;
    curves = {};
    const query = new URLSearchParams({
      metric: metric.value,
      layer: layer.value || "last",
      place: place.value,
    });
    const source = new EventSource(`${root}api/events?${query.toString()}`);
    source.onmessage = (event) => {
      take(JSON.parse(event.data));
    };
    source.onerror = () => {
      status.textContent = "The server does not answer; trying again.";
    };
    return source;
  }
  function connect() {
    line.again();
  }

  [metric, layer, place].forEach((one) => {
    one.addEventListener("change", connect);
  });
  [log, scrub].forEach((one) => {
    one.addEventListener("input", draw);
  });
  filter.addEventListener("input", fillList);
  document.getElementById("all").addEventListener("click", () => {
    choose(true);
  });
  document.getElementById("none").addEventListener("click", () => {
    choose(false);
  });
  function choose(on) {
    const needle = filter.value.toLowerCase();
    runs.forEach((run) => {
      if (!needle || `${run.name} ${run.path}`.toLowerCase().indexOf(needle) >= 0)
        chosen[run.slug] = on;
    });
    fillList();
    draw();
  }
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "▶ Go on" : "❚❚ Pause";
    // What was missed meanwhile comes with the first message of a new connection.
    if (!paused) return connect();
    line.stop();
    return draw();
  });
  nclab.onTheme(fillList);
  line = nclab.live.line = nclab.whileShown(open);
});
