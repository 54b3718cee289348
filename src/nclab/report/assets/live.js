// The live page: the same comparison while runs grow; pause it, or go back in time.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const root = document.body.dataset.live;
  const pause = document.getElementById("pause");
  if (!root || !pause) return;
  const scrub = document.getElementById("scrub");
  const until = document.getElementById("until");
  const status = document.getElementById("status");
  let curves = {};
  const first = nclab.readView({});
  let place = nclab.overTraining(first.x) ? first.x : "epoch";
  let asked = JSON.stringify([first.layer, place, first.metrics]);
  let paused = false;
  let runs = [];
  let line = null;

  const page = nclab.compare({
    root: root,
    layers: true,
    curves: (metric, wanted) => {
      if (wanted !== place) return null;
      const found = {};
      Object.keys(curves).forEach((slug) => {
        found[slug] = curves[slug].filter((one) => one.metric === metric);
      });
      return found;
    },
    want: (state) => {
      // A new selection needs new curves; a setting on the x axis needs none.
      if (nclab.overTraining(state.x)) place = state.x;
      const next = JSON.stringify([state.layer, place, state.metrics]);
      if (next === asked) return;
      asked = next;
      if (line) line.again();
    },
  });
  nclab.live = {
    page: page,
    get chart() {
      return page.charts.length ? page.charts[0].chart : { view: { series: [] } };
    },
  };
  nclab.comparing = page;

  function tell() {
    const going = runs.filter((run) => run.state === "running").length;
    status.textContent = `${runs.length} runs, ${going} running${paused ? " · paused" : ""}`;
  }

  function cut() {
    // Position of the slider in the measurements so far.
    const back = Number(scrub.value) / 1000;
    let end = 0;
    nclab.live.chart.view.series.forEach((one) => {
      if (!one.quiet && one.x.length) end = Math.max(end, one.x[one.x.length - 1]);
    });
    page.until = back >= 1 ? null : back * end;
    until.textContent = back >= 1 ? "now" : `${place} ${nclab.number(page.until, 4)}`;
  }

  function take(message) {
    Object.keys(message.curves || {}).forEach((slug) => {
      curves[slug] = message.curves[slug];
    });
    // If no metric is selected, use the one that the server selected.
    if (message.metric && asked.endsWith(",[]]"))
      asked = asked.replace(/\[\]\]$/, `${JSON.stringify([message.metric])}]`);
    if (message.runs) {
      page.take(message);
      runs = page.known.runs;
    } else page.draw();
    if (page.until !== null) {
      cut();
      page.draw();
    }
    tell();
  }

  function open() {
    if (paused) return null;
    curves = {};
    const [layer, over, metrics] = JSON.parse(asked);
    const query = new URLSearchParams({ layer: layer, place: over });
    metrics.forEach((metric) => {
      query.append("metric", metric);
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
  scrub.addEventListener("input", () => {
    cut();
    page.draw();
  });
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "▶ Go on" : "❚❚ Pause";
    // The first message of a new connection has everything that changed during the pause.
    if (paused) line.stop();
    else line.again();
    tell();
  });
  line = nclab.live.line = nclab.whileShown(open);
});
