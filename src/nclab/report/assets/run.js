// The page of one run: curves of every layer, class cosines, the 3-D picture, the certificate.
"use strict";
nclab.gotRun = function (data) { nclab.run = data; };

nclab.runPage = function () {
  var data = nclab.run;
  if (!data) return null;
  var charts = [], page = {};
  var settings = { place: (document.getElementById("place") || { value: "epoch" }).value, log: true };

  function info(name) { return data.metrics.find(function (one) { return one.name === name; }) || { name: name, meaning: "", ideal: null }; }

  function seriesOf(metric) {
    // Per layer, from the kind of record that has most of it.
    var best = {};
    data.tables.forEach(function (table) {
      table.columns.forEach(function (column) {
        if (column.metric !== metric) return;
        var known = column.y.reduce(function (sum, y) { return sum + (y !== null); }, 0);
        if (best[column.layer] && best[column.layer].known >= known) return;
        var x = table[settings.place], usable = x.some(function (value) { return value !== null; });
        best[column.layer] = { known: known, x: usable ? x : table.step, y: column.y };
      });
    });
    var layers = Object.keys(best);
    layers.sort(function (one, other) { return data.layers.indexOf(one) - data.layers.indexOf(other); });
    return layers.map(function (layer) {
      var place = Math.max(0, data.layers.indexOf(layer));
      return { label: layer || data.name, x: best[layer].x, y: best[layer].y, colour: place, dash: nclab.dash(place) };
    });
  }

  function changes(metric) {
    var about = info(metric), series = seriesOf(metric);
    var positive = series.every(function (one) { return one.y.every(function (y) { return y === null || y > 0; }); });
    var bounded = /intra|inter|accuracy|agreement|alignment|margin/.test(metric);
    return {
      series: series,
      xLabel: settings.place,
      log: settings.log && positive && !bounded,
      references: about.ideal === null || about.ideal === undefined ? [] : [{ label: "collapse: " + nclab.number(about.ideal, 3), y: about.ideal }],
    };
  }

  function addChart(box, metric, height) {
    var about = info(metric);
    var card = box.appendChild(nclab.element("div", { class: "panel" }, [
      nclab.element("h3", { text: metric }), nclab.element("p", { class: "meaning", text: about.meaning || " " }),
    ]));
    var chart = nclab.chart(card.appendChild(nclab.element("div")), Object.assign({ height: height, noLegend: true }, changes(metric)));
    charts.push({ chart: chart, metric: function () { return metric; } });
    return card;
  }

  function curves() {
    var box = document.getElementById("curves"), chooser = document.getElementById("metric");
    if (!data.metrics.length) {
      box.appendChild(nclab.element("p", { class: "note", text: "This run has no measurements yet." }));
      return;
    }
    var names = data.metrics.map(function (one) { return one.name; });
    data.first.forEach(function (name) { addChart(box, name, 210); });
    names.forEach(function (name) { chooser.appendChild(nclab.element("option", { value: name, text: name })); });
    chooser.value = names.indexOf("min_intra") >= 0 ? "min_intra" : names[0];
    var explorer = nclab.chart(document.getElementById("explorer"), Object.assign({ height: 320 }, changes(chooser.value)));
    charts.push({ chart: explorer, metric: function () { return chooser.value; } });
    function meaning() { document.getElementById("metric-meaning").textContent = info(chooser.value).meaning; }
    function again() { charts.forEach(function (one) { one.chart.update(changes(one.metric())); }); meaning(); }
    meaning();
    chooser.addEventListener("change", again);
    document.getElementById("place").addEventListener("change", function (event) { settings.place = event.target.value; again(); });
    document.getElementById("log").addEventListener("change", function (event) { settings.log = event.target.checked; again(); });
    document.getElementById("save-csv").addEventListener("click", function () { nclab.save(data.slug + ".csv", nclab.runCsv(data), "text/csv"); });
    document.getElementById("save-json").addEventListener("click", function () { nclab.save(data.slug + ".json", JSON.stringify(data), "application/json"); });
    page.again = again;
  }

  function moment(frame) {
    if (!frame) return "";
    if (frame.epoch !== null && frame.epoch !== undefined) return "epoch " + nclab.number(frame.epoch, 6);
    return frame.step !== null && frame.step !== undefined ? "step " + nclab.number(frame.step, 8) : "";
  }

  function cosines() {
    var box = document.getElementById("cosines");
    if (!data.cosines) {
      box.appendChild(nclab.element("p", { class: "note", text: "No class cosines were recorded for this run." }));
      return;
    }
    var heat = nclab.heatMap(box, { size: data.cosines.classes, fine: data.cosines.fine, values: [] });
    page.cosines = nclab.player(box.appendChild(nclab.element("div")), {
      count: data.cosines.frames.length,
      label: function (at) { return moment(data.cosines.frames[at]); },
      show: function (at) { heat.update({ size: data.cosines.classes, values: data.cosines.frames[Math.round(at)].values }); },
    });
  }

  function space(where) {
    var box = document.getElementById(where);
    if (!data.geometry.length) {
      box.appendChild(nclab.element("p", { class: "note", text: "No 3-D pictures were recorded for this run." }));
      return;
    }
    var chosen = data.geometry.length - 1, note = nclab.element("p", { class: "note" });
    function now() { return data.geometry[Math.min(chosen, data.geometry.length - 1)]; }
    if (data.geometry.length > 1) {
      var select = nclab.element("select", { "aria-label": "layer" });
      data.geometry.forEach(function (one, place) { select.appendChild(nclab.element("option", { value: place, text: one.layer || "layer " + (place + 1) })); });
      select.value = chosen;
      select.addEventListener("change", function () { chosen = Number(select.value); player.update({ count: now().frames.length }); });
      box.appendChild(select);
    }
    var scene = nclab.space(box, { fine: now().fine, frames: now().frames });
    var player = nclab.player(box.appendChild(nclab.element("div")), {
      count: now().frames.length,
      label: function (at) { return moment(now().frames[at]); },
      show: function (at) {
        var frame = now().frames[Math.min(now().frames.length - 1, Math.round(at))];
        scene.update({ frames: now().frames, at: at });
        note.textContent = (frame.share >= 0.9995 ? "Exact: the class means span three dimensions." : "A projection that shows " + Math.round(100 * frame.share) + " % of the variance of the class means.") + " Drag to turn.";
      },
    });
    box.appendChild(note);
    page.space = player;
    page.scene = scene;
  }

  function certificate() {
    var box = document.getElementById("certificate"), found = data.certificate;
    box.textContent = "";
    if (!found) {
      box.appendChild(nclab.element("p", { class: "note", text: "No certificate: the last measurement has no loss, or no classifier." }));
      return;
    }
    var cells = function (kind, values) { return values.map(function (value, place) { return nclab.element(kind, { text: value, class: place ? "number" : null }); }); };
    var rows = found.rows.map(function (row) {
      return nclab.element("tr", {}, cells("td", [row.quantity, row.guaranteed === null ? "nothing" : nclab.number(row.guaranteed), nclab.number(row.measured), row.thesis === null ? "nothing" : nclab.number(row.thesis), nclab.number(row.collapse)]));
    });
    if (rows.length) box.appendChild(nclab.element("div", { class: "scroll" }, [nclab.element("table", {}, [
      nclab.element("thead", {}, [nclab.element("tr", {}, cells("th", ["quantity", "guaranteed", "measured", "pan2023", "at collapse"]))]),
      nclab.element("tbody", {}, rows),
    ])]));
    box.appendChild(nclab.element("p", { text: found.words }));
    if (!found.classes) return;
    var classes = found.classes.measured.map(function (_, place) { return place; });
    nclab.chart(box.appendChild(nclab.element("div")), {
      height: 220, xLabel: "class", yLabel: "intra-class cosine",
      series: [{ label: "measured", x: classes, y: found.classes.measured, colour: 0, marks: "filled" }, { label: "guaranteed", x: classes, y: found.classes.guaranteed, colour: 1, marks: "hollow" }],
    });
  }

  if (document.getElementById("hero-space")) {
    space("hero-space");
    return page;
  }
  curves();
  cosines();
  space("space");
  certificate();
  page.refresh = function (fresh) {
    // Only when whoever looks at it is at the end does the picture move on.
    var known = data.metrics.length;
    data = nclab.run = fresh;
    if (fresh.metrics.length !== known || (fresh.cosines && !page.cosines) || (fresh.geometry.length && !page.space)) return window.location.reload();
    if (page.again) page.again();
    if (page.cosines && fresh.cosines) page.cosines.update({ count: fresh.cosines.frames.length });
    if (page.space && fresh.geometry.length) page.space.update({ count: fresh.geometry[fresh.geometry.length - 1].frames.length });
    certificate();
    return undefined;
  };
  return page;
};

nclab.runCsv = function (data) {
  var lines = [["kind", "layer", "metric", "step", "epoch", "value"].join(",")];
  data.tables.forEach(function (table) {
    table.columns.forEach(function (column) {
      column.y.forEach(function (value, row) {
        if (value === null) return;
        lines.push([table.kind, column.layer, column.metric, table.step[row], table.epoch[row], value].map(nclab.csvCell).join(","));
      });
    });
  });
  return lines.join("\n") + "\n";
};

document.addEventListener("DOMContentLoaded", function () {
  if (!document.getElementById("curves") && !document.getElementById("hero-space")) return;
  nclab.page = nclab.runPage();
  var live = document.body.dataset.live;
  if (!live || !nclab.page || !nclab.page.refresh) return;
  var slug = encodeURIComponent(nclab.run.slug), busy = false, wanted = false;
  function over() { return nclab.run.state === "finished" || nclab.run.state === "failed"; }
  if (over()) return;
  function ask() {
    wanted = busy;
    if (busy || document.hidden) return;
    busy = true;
    fetch(live + "api/run/" + slug).then(function (answer) { return answer.json(); }).then(function (fresh) {
      nclab.page.refresh(fresh);
      if (over()) nclab.changes.stop();
      document.querySelectorAll("[data-state]").forEach(function (part) { part.dataset.state = fresh.state; part.textContent = fresh.state; });
    }).catch(function () {
      // The server or the run is gone: what is drawn stays.
    }).finally(function () {
      window.setTimeout(function () { busy = false; if (wanted) ask(); }, 800);
    });
  }
  nclab.changes = nclab.whileShown(function () {
    if (over()) return null;
    var source = new EventSource(live + "api/changes?run=" + slug);
    source.onopen = ask; // what was missed meanwhile
    source.onmessage = ask;
    return source;
  });
});
