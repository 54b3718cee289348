// The page of one run: curves of every layer, class cosines, the 3-D picture, the certificate.
"use strict";
nclab.gotRun = (data) => {
  nclab.run = data;
};

nclab.runPage = () => {
  let data = nclab.run;
  if (!data) return null;
  const charts = [];
  const page = {};
  const over = document.getElementById("place");
  const settings = { place: over ? over.value : "epoch", log: true, centred: false };

  function info(name) {
    const found = data.metrics.find((one) => one.name === name);
    const meaning = nclab.meanings?.[name] || "";
    return Object.assign({ name: name, meaning: meaning, ideal: null }, found);
  }

  function own(metric) {
    // The cosines of centred features are metrics of their own.
    const other = `centred_${metric}`;
    return settings.centred && data.metrics.some((one) => one.name === other) ? other : metric;
  }

  function alarms() {
    // Moments of training at which the monitor raised alarms.
    const at = { epoch: "epoch", step: "step" }[settings.place];
    return data.warnings
      .filter((one) => at && typeof one[at] === "number")
      .map((one) => ({ x: one[at], label: `${one.layer}: ${one.message}`, severe: one.severe }));
  }

  function alarmList() {
    // Fill the table when the page opens and whenever the monitor raises an alarm.
    const box = document.getElementById("alarms");
    const said = (one) => (one.names?.length ? one.names : one.classes || []).join(", ");
    const where = (one) =>
      one.layer + (one.split && one.split !== "train" ? ` · ${one.split}` : "");
    const rows = data.warnings.map((one) =>
      nclab.element("tr", {}, [
        nclab.element("td", {
          class: "number",
          "data-label": "epoch",
          text: nclab.number(one.epoch),
        }),
        nclab.element("td", {}, [
          nclab.element("span", {
            class: one.severe === false ? "health good" : "health",
            text: one.name,
          }),
        ]),
        nclab.element("td", { "data-label": "layer", text: where(one) }),
        nclab.element("td", { text: one.message }),
        nclab.element("td", { "data-label": "classes", text: said(one) }),
      ]),
    );
    box.hidden = !rows.length;
    box.querySelector("tbody").replaceChildren(...rows);
  }

  function seriesOf(metric) {
    // For each layer, use the kind of record with the most values.
    const best = {};
    data.tables.forEach((table) => {
      table.columns.forEach((column) => {
        if (column.metric !== metric) return;
        const known = column.y.reduce((sum, y) => sum + (y !== null), 0);
        if (best[column.layer] && best[column.layer].known >= known) return;
        const x = table[settings.place];
        const usable = x.some((value) => value !== null);
        best[column.layer] = { known: known, x: usable ? x : table.step, y: column.y };
      });
    });
    const layers = Object.keys(best);
    layers.sort((one, other) => data.layers.indexOf(one) - data.layers.indexOf(other));
    return layers.map((layer) => {
      const place = Math.max(0, data.layers.indexOf(layer));
      return {
        label: layer || data.name,
        x: best[layer].x,
        y: best[layer].y,
        colour: place,
        dash: nclab.dash(place),
      };
    });
  }

  function changes(metric) {
    const about = info(metric);
    const series = seriesOf(metric);
    const positive = series.every((one) => one.y.every((y) => y === null || y > 0));
    const bounded = /intra|inter|accuracy|agreement|alignment|margin/.test(metric);
    return {
      series: series,
      marks: alarms(),
      about: metric,
      noLegend: series.length < 2,
      xLabel: settings.place,
      log: settings.log && positive && !bounded,
      references:
        about.ideal === null || about.ideal === undefined
          ? []
          : [{ label: `collapse: ${nclab.number(about.ideal, 3)}`, y: about.ideal }],
    };
  }

  function addChart(box, metric, height) {
    const head = nclab.element("h3");
    const words = nclab.element("p", { class: "meaning" });
    const card = box.appendChild(nclab.element("div", { class: "panel" }, [head, words]));
    function title() {
      head.textContent = own(metric);
      words.textContent = info(own(metric)).meaning || " ";
    }
    title();
    const chart = nclab.chart(
      card.appendChild(nclab.element("div")),
      Object.assign({ height: height }, changes(own(metric))),
    );
    charts.push({ chart: chart, metric: () => own(metric), title: title });
  }

  function curves() {
    const box = document.getElementById("curves");
    const chooser = document.getElementById("metric");
    if (!data.metrics.length) {
      box.appendChild(
        nclab.element("p", { class: "note", text: "This run has no measurements yet." }),
      );
      return;
    }
    const names = data.metrics.map((one) => one.name);
    data.first.forEach((name) => {
      addChart(box, name, 210);
    });
    names.forEach((name) => {
      chooser.appendChild(nclab.element("option", { value: name, text: name }));
    });
    chooser.value = names.indexOf("min_intra") >= 0 ? "min_intra" : names[0];
    const explorer = nclab.chart(
      document.getElementById("explorer"),
      Object.assign({ height: 320 }, changes(chooser.value)),
    );
    charts.push({
      chart: explorer,
      metric: () => chooser.value,
    });
    function meaning() {
      document.getElementById("metric-meaning").textContent = info(chooser.value).meaning;
      const formula = document.getElementById("metric-formula");
      const own = nclab.formulas?.[chooser.value]; // a formula of nclab, never text from a run
      formula.hidden = !own;
      formula.innerHTML = own || "";
    }
    function again() {
      charts.forEach((one) => {
        one.chart.update(changes(one.metric()));
        if (one.title) one.title();
      });
      meaning();
    }
    meaning();
    chooser.addEventListener("change", again);
    over.addEventListener("change", (event) => {
      settings.place = event.target.value;
      again();
    });
    document.getElementById("log").addEventListener("change", (event) => {
      settings.log = event.target.checked;
      again();
    });
    const centred = document.getElementById("centred");
    centred.parentNode.hidden = !names.some((name) => name.indexOf("centred_") === 0);
    centred.addEventListener("change", () => {
      settings.centred = centred.checked;
      again();
    });
    document.getElementById("save-csv").addEventListener("click", () => {
      nclab.save(`${data.slug}.csv`, nclab.runCsv(data), "text/csv");
    });
    document.getElementById("save-json").addEventListener("click", () => {
      nclab.save(`${data.slug}.json`, JSON.stringify(data), "application/json");
    });
    page.again = again;
  }

  function moment(frame) {
    if (!frame) return "";
    if (frame.epoch !== null && frame.epoch !== undefined)
      return `epoch ${nclab.number(frame.epoch, 6)}`;
    return frame.step !== null && frame.step !== undefined
      ? `step ${nclab.number(frame.step, 8)}`
      : "";
  }

  function cosines() {
    const box = document.getElementById("cosines");
    if (!data.cosines) {
      box.appendChild(
        nclab.element("p", { class: "note", text: "No class cosines were recorded for this run." }),
      );
      return;
    }
    const heat = nclab.heatMap(box, {
      size: data.cosines.classes,
      fine: data.cosines.fine,
      names: data.cosines.names,
      values: [],
    });
    page.cosines = nclab.player(box.appendChild(nclab.element("div")), {
      count: data.cosines.frames.length,
      label: (at) => moment(data.cosines.frames[at]),
      show: (at) => {
        heat.update({
          size: data.cosines.classes,
          values: data.cosines.frames[Math.round(at)].values,
        });
      },
    });
  }

  function space(where) {
    const box = document.getElementById(where);
    if (!data.geometry.length) {
      const how = data.kind === "monitor" ? " Monitor(model, points=300) keeps them." : "";
      box.appendChild(
        nclab.element("p", {
          class: "note",
          text: `No 3-D pictures were recorded for this run.${how}`,
        }),
      );
      return;
    }
    let chosen = data.geometry.length - 1;
    const note = nclab.element("p", { class: "note" });
    function now() {
      return data.geometry[Math.min(chosen, data.geometry.length - 1)];
    }
    if (data.geometry.length > 1) {
      const select = nclab.element("select", { "aria-label": "layer" });
      data.geometry.forEach((one, place) => {
        select.appendChild(
          nclab.element("option", { value: place, text: one.layer || `layer ${place + 1}` }),
        );
      });
      select.value = chosen;
      select.addEventListener("change", () => {
        chosen = Number(select.value);
        player.update({ count: now().frames.length });
      });
      box.appendChild(select);
    }
    const scene = nclab.space(box, {
      fine: now().fine,
      frames: now().frames,
      names: now().names,
    });
    const player = nclab.player(box.appendChild(nclab.element("div")), {
      count: now().frames.length,
      label: (at) => moment(now().frames[at]),
      show: (at) => {
        const frame = now().frames[Math.min(now().frames.length - 1, Math.round(at))];
        scene.update({ frames: now().frames, at: at });
        const percent = Math.round(100 * frame.share);
        const kind =
          frame.share >= 0.9995
            ? "Exact: the class means span three dimensions."
            : `A projection that shows ${percent} % of the variance of the class means.`;
        note.textContent = `${kind} Drag to turn.`;
      },
    });
    box.appendChild(note);
    page.space = player;
    page.scene = scene;
  }

  function certificate() {
    const box = document.getElementById("certificate");
    const found = data.certificate;
    box.textContent = "";
    if (data.toward) box.appendChild(nclab.element("p", { text: data.toward }));
    if (!found) {
      box.appendChild(
        nclab.element("p", {
          class: "note",
          text: "No certificate: the last measurement has no loss, or no classifier.",
        }),
      );
      return;
    }
    const thesis = box.dataset.thesis && found.rows.some((row) => row.thesis !== null);
    const cells = (kind, values) =>
      values
        .filter((value) => value !== null)
        .map((value, place) =>
          nclab.element(kind, { text: value, class: place ? "number" : null }),
        );
    const rows = found.rows.map((row) =>
      nclab.element(
        "tr",
        {},
        cells("td", [
          row.quantity,
          row.guaranteed === null ? row.otherwise : nclab.number(row.guaranteed),
          nclab.number(row.measured),
          thesis ? (row.thesis === null ? "nothing" : nclab.number(row.thesis)) : null,
          nclab.number(row.collapse),
        ]),
      ),
    );
    if (rows.length)
      box.appendChild(
        nclab.element("div", { class: "scroll" }, [
          nclab.element("table", {}, [
            nclab.element("thead", {}, [
              nclab.element(
                "tr",
                {},
                cells("th", [
                  "quantity",
                  "guaranteed",
                  "measured",
                  thesis ? "as pan2023 has it" : null,
                  "at collapse",
                ]),
              ),
            ]),
            nclab.element("tbody", {}, rows),
          ]),
        ]),
      );
    box.appendChild(nclab.element("p", { text: found.words }));
    if (!found.classes) return;
    const classes = found.classes.measured.map((_, place) => place);
    nclab.chart(box.appendChild(nclab.element("div")), {
      height: 220,
      xNames: classes.map((place) => found.classes.names?.[place] ?? String(place)),
      xLabel: "class",
      yLabel: "intra-class cosine",
      series: [
        { label: "measured", x: classes, y: found.classes.measured, colour: 0, marks: "filled" },
        {
          label: "guaranteed",
          x: classes,
          y: found.classes.guaranteed,
          colour: 1,
          marks: "hollow",
        },
      ],
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
  page.refresh = (fresh) => {
    // Follow new frames only if the slider is at the end.
    const known = data.metrics.length;
    const warned = data.warnings.length;
    data = nclab.run = fresh;
    document.querySelector(".lead .states")?.replaceWith(nclab.stateOf(fresh));
    if (fresh.warnings.length !== warned) alarmList();
    if (
      fresh.metrics.length !== known ||
      (fresh.cosines && !page.cosines) ||
      (fresh.geometry.length && !page.space)
    )
      return window.location.reload();
    if (page.again) page.again();
    if (page.cosines && fresh.cosines) page.cosines.update({ count: fresh.cosines.frames.length });
    if (page.space && fresh.geometry.length)
      page.space.update({ count: fresh.geometry[fresh.geometry.length - 1].frames.length });
    certificate();
    return undefined;
  };
  return page;
};

nclab.runCsv = (data) => {
  const places = ["step", "epoch", "log t"].filter((name) => data.tables.some((one) => one[name]));
  const lines = [["kind", "layer", "metric", ...places, "value"].join(",")];
  data.tables.forEach((table) => {
    table.columns.forEach((column) => {
      column.y.forEach((value, row) => {
        if (value === null) return;
        const at = places.map((name) => table[name]?.[row]);
        lines.push(
          [table.kind, column.layer, column.metric, ...at, value].map(nclab.csvCell).join(","),
        );
      });
    });
  });
  return `${lines.join("\n")}\n`;
};

document.addEventListener("DOMContentLoaded", () => {
  if (!document.getElementById("curves") && !document.getElementById("hero-space")) return;
  nclab.page = nclab.runPage();
  const live = document.body.dataset.live;
  if (!live || !nclab.page?.refresh) return;
  const slug = encodeURIComponent(nclab.run.slug);
  let busy = false;
  let wanted = false;
  function over() {
    return nclab.run.state === "finished" || nclab.run.state === "failed";
  }
  if (over()) return;
  function ask() {
    wanted = busy;
    if (busy || document.hidden) return;
    busy = true;
    fetch(`${live}api/run/${slug}`)
      .then((answer) => answer.json())
      .then((fresh) => {
        nclab.page.refresh(fresh);
        if (over()) nclab.changes.stop();
      })
      .catch(() => {
        // The server or the run is gone; keep the charts.
      })
      .finally(() => {
        window.setTimeout(() => {
          busy = false;
          if (wanted) ask();
        }, 800);
      });
  }
  nclab.changes = nclab.whileShown(() => {
    if (over()) return null;
    const source = new EventSource(`${live}api/changes?run=${slug}`);
    source.onopen = ask; // ask for everything that changed while the connection was closed
    source.onmessage = ask;
    return source;
  });
});
