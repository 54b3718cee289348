// The live page: many runs on one chart, growing while they train; pause it, or go back in time.
"use strict";
document.addEventListener("DOMContentLoaded", function () {
  var list = document.getElementById("run-list");
  if (!list) return;
  var root = document.body.dataset.live, runs = [], curves = {}, chosen = {}, line = null, paused = false;
  var metric = document.getElementById("metric"), layer = document.getElementById("layer"), place = document.getElementById("place");
  var log = document.getElementById("log"), filter = document.getElementById("run-filter"), pause = document.getElementById("pause");
  var scrub = document.getElementById("scrub"), until = document.getElementById("until"), status = document.getElementById("status");
  var chart = nclab.chart(document.getElementById("live-chart"), { height: 430, noLegend: true, empty: "Waiting for measurements." });
  nclab.live = { chart: chart };

  function choices(select, values, names) {
    var before = select.value, same = Array.from(select.options).map(function (one) { return one.value; }).join("\n") === values.join("\n");
    if (same) return;
    select.textContent = "";
    values.forEach(function (value, at) { select.appendChild(nclab.element("option", { value: value, text: names ? names[at] : value })); });
    if (values.indexOf(before) >= 0) select.value = before;
  }

  function union(name) {
    var seen = {}, found = [];
    runs.forEach(function (run) { run[name].forEach(function (one) { if (!seen[one]) { seen[one] = true; found.push(one); } }); });
    return found;
  }

  function fillControls(chosenThere) {
    var metrics = union("metrics"), layers = union("layers"), fresh = !metric.options.length;
    choices(metric, metrics);
    // Whoever had none takes over the one that the server has chosen.
    if (fresh && metrics.indexOf(chosenThere) >= 0) metric.value = chosenThere;
    choices(layer, ["last", "every"].concat(layers.map(function (one) { return "=" + one; })), ["last layer", "every layer"].concat(layers));
  }

  function fillList() {
    var needle = filter.value.toLowerCase();
    list.textContent = "";
    runs.forEach(function (run, at) {
      if (chosen[run.slug] === undefined) chosen[run.slug] = true;
      if (needle && (run.name + " " + run.path).toLowerCase().indexOf(needle) < 0) return;
      var box = nclab.element("input", { type: "checkbox", "aria-label": "show " + run.name });
      box.checked = chosen[run.slug];
      box.addEventListener("change", function () { chosen[run.slug] = box.checked; draw(); });
      var swatch = nclab.element("span", { class: "swatch" });
      swatch.style.borderTopColor = nclab.line(at);
      var bar = nclab.element("span", { class: "bar" }, [nclab.element("span")]);
      bar.firstChild.style.width = Math.round(100 * (run.progress || 0)) + "%";
      list.appendChild(nclab.element("li", { "data-run": run.slug }, [
        nclab.element("label", {}, [box, swatch, nclab.element("span", { class: "run-name", text: run.name, title: run.path })]),
        nclab.element("a", { href: root + "runs/" + encodeURIComponent(run.slug) + ".html", text: "open" }),
        nclab.element("span", { class: "state " + run.state, text: run.state }), bar,
      ]));
    });
  }

  function series() {
    var made = [];
    runs.forEach(function (run, at) {
      if (!chosen[run.slug]) return;
      (curves[run.slug] || []).forEach(function (curve, number) {
        var label = curve.layer && layer.value === "every" ? run.name + " · " + curve.layer : run.name;
        made.push({ label: label, x: curve.x, y: curve.y, colour: layer.value === "every" && runs.length === 1 ? number : at, dash: layer.value === "every" ? nclab.dashes[number % nclab.dashes.length] : nclab.dash(at), width: 1.4 });
      });
    });
    return made;
  }

  function last(all) {
    return all.reduce(function (most, one) { return one.x.length ? Math.max(most, one.x[one.x.length - 1]) : most; }, 0);
  }

  function draw() {
    var all = series(), end = last(all), back = Number(scrub.value) / 1000;
    var cut = back >= 1 ? null : back * end;
    var positive = all.every(function (one) { return one.y.every(function (y) { return y === null || y > 0; }); });
    until.textContent = cut === null ? "now" : place.value + " " + nclab.number(cut, 4);
    chart.update({ series: all, until: cut, log: log.checked && positive, xLabel: place.value, yLabel: metric.value }, true);
    var going = runs.filter(function (run) { return run.state === "running"; }).length;
    status.textContent = runs.length + " runs, " + going + " running" + (paused ? " · paused" : "");
  }

  function take(message) {
    if (message.runs) {
      runs = message.runs;
      fillControls(message.metric);
      fillList();
      if (message.metric && message.metric !== metric.value) return connect();
    }
    Object.keys(message.curves || {}).forEach(function (slug) { curves[slug] = message.curves[slug]; });
    draw();
    return undefined;
  }

  function open() {
    if (paused) return null;
    curves = {};
    var query = new URLSearchParams({ metric: metric.value, layer: layer.value || "last", place: place.value });
    var source = new EventSource(root + "api/events?" + query.toString());
    source.onmessage = function (event) {
      take(JSON.parse(event.data));
    };
    source.onerror = function () { status.textContent = "The server does not answer; trying again."; };
    return source;
  }
  function connect() { line.again(); }

  [metric, layer, place].forEach(function (one) { one.addEventListener("change", connect); });
  [log, scrub].forEach(function (one) { one.addEventListener("input", draw); });
  filter.addEventListener("input", fillList);
  document.getElementById("all").addEventListener("click", function () { choose(true); });
  document.getElementById("none").addEventListener("click", function () { choose(false); });
  function choose(on) {
    var needle = filter.value.toLowerCase();
    runs.forEach(function (run) { if (!needle || (run.name + " " + run.path).toLowerCase().indexOf(needle) >= 0) chosen[run.slug] = on; });
    fillList();
    draw();
  }
  pause.addEventListener("click", function () {
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
