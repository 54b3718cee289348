// Comparing runs: any metric over training or against any setting, grouped, with bands over seeds.
"use strict";

nclab.view = {
  // The whole selection of a page of runs; the address of the page stores it.
  lists: ["metrics", "columns", "off"],
  start: {
    metrics: [],
    x: "epoch",
    layer: "last",
    colour: "",
    dash: "",
    logx: "",
    logy: "",
    smooth: "",
    filter: "",
    sort: "",
    columns: null,
    off: [],
  },
};

nclab.readView = (defaults) => {
  const found = Object.assign({}, nclab.view.start, defaults);
  new URLSearchParams(window.location.hash.slice(1)).forEach((value, name) => {
    if (!(name in nclab.view.start)) return;
    const list = nclab.view.lists.indexOf(name) >= 0;
    found[name] = list ? value.split("|").filter(Boolean) : value;
  });
  return found;
};

nclab.writeView = (state, defaults) => {
  const query = new URLSearchParams();
  const before = Object.assign({}, nclab.view.start, defaults);
  Object.keys(nclab.view.start).forEach((name) => {
    const value = Array.isArray(state[name]) ? state[name].join("|") : state[name];
    const usual = Array.isArray(before[name]) ? before[name].join("|") : before[name];
    if (value !== null && value !== usual) query.set(name, value);
  });
  window.history.replaceState(null, "", `#${query.toString()}`);
};

nclab.overTraining = (x) => ["epoch", "step", "log t"].indexOf(x) >= 0;

nclab.smooth = (y, weight) => {
  // Exponential moving average, corrected so that it starts at the first value.
  if (!weight) return y;
  let sum = 0;
  let mass = 0;
  return y.map((value) => {
    if (value === null || value === undefined) return value;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
};

nclab.valueAt = (one, x, from) => {
  // Interpolate a curve; null outside its range. `from` increases with x.
  while (from.at < one.x.length - 1 && one.x[from.at + 1] < x) from.at++;
  const at = from.at;
  if (one.x[at] === x) return one.y[at];
  if (at + 1 >= one.x.length || one.x[at] > x) return null;
  if (one.x[at + 1] === x) return one.y[at + 1];
  const low = one.y[at];
  const high = one.y[at + 1];
  if (low === null || high === null) return null;
  return low + ((x - one.x[at]) / (one.x[at + 1] - one.x[at])) * (high - low);
};

nclab.spread = (curves) => {
  // Mean, smallest and largest of several curves, at every x at which one of them was measured.
  const alike = (one, other) =>
    one === other || (one.length === other.length && one.every((x, at) => x === other[at]));
  const same = curves.every((one) => alike(one.x, curves[0].x));
  let x = curves[0].x;
  if (!same) {
    const all = new Set();
    curves.forEach((one) => {
      one.x.forEach((value) => {
        if (value !== null) all.add(value);
      });
    });
    x = Array.from(all).sort((one, other) => one - other);
    const every = Math.ceil(x.length / 400);
    x = x.filter((_, place) => place % every === 0 || place === x.length - 1);
  }
  const made = { x: x, y: [], low: [], high: [] };
  const places = curves.map(() => ({ at: 0 }));
  x.forEach((value, row) => {
    let count = 0;
    let sum = 0;
    let low = Infinity;
    let high = -Infinity;
    curves.forEach((one, which) => {
      const y = same ? one.y[row] : nclab.valueAt(one, value, places[which]);
      if (y === null || y === undefined) return;
      count++;
      sum += y;
      low = Math.min(low, y);
      high = Math.max(high, y);
    });
    made.y.push(count ? sum / count : null);
    made.low.push(count ? low : null);
    made.high.push(count ? high : null);
  });
  if (curves.length === 1) return { x: x, y: made.y };
  return made;
};

nclab.compare = (source) => {
  // source: {curves(metric) -> {slug: [{layer, x, y}]} or null while they are loading,
  //   want(state): called when the selection changes, layers: whether layers can be selected}
  let table = { runs: [], axes: [], same: {}, metrics: [] };
  let state = null;
  let defaults = {};
  const page = { charts: [], until: null };
  const at = (id) => document.getElementById(id);
  const panels = at("compare");

  const axesOf = () => table.axes.filter((axis) => axis !== "seed");
  const overTraining = () => nclab.overTraining(state.x);
  const bad = (run) =>
    run.state === "failed" || ["dead", "not finite", "not measured"].indexOf(run.health) >= 0;

  page.called = (run) => {
    // Name a run by the settings in which it differs from others.
    const own = table.axes.filter((axis) => run.config[axis] !== undefined);
    return own.length
      ? own.map((axis) => `${axis} ${nclab.setting(run.config[axis])}`).join(", ")
      : run.name;
  };

  function firstView() {
    // Sweeps are drawn as groups with bands, other runs as single lines.
    const axes = axesOf();
    const kinds = (axis) => new Set(table.runs.map((run) => run.config[axis])).size;
    const found = { colour: "", dash: "" };
    if (axes.length && kinds(axes[0]) <= 12) found.colour = axes[0];
    if (found.colour && axes.length > 1 && kinds(axes[0]) * kinds(axes[1]) <= 24)
      found.dash = axes[1];
    // Runs that ended with a single measurement have no curves: draw them against a setting.
    const once = table.runs.every((run) => run.measured <= 1 && run.state !== "running");
    if (once && axes.length) {
      found.x = axes.find((axis) => typeof table.runs[0].config[axis] === "number") || axes[0];
      found.logx = byPowers(found.x) ? "1" : "";
    }
    return found;
  }

  function byPowers(axis) {
    // Values over several powers of ten get a logarithmic axis.
    const values = table.runs.map((run) => run.config[axis]).filter(Number.isFinite);
    const least = Math.min(...values);
    return values.length > 0 && least > 0 && Math.max(...values) / least >= 20;
  }

  function firstMetrics() {
    const names = table.metrics.map((one) => one.name);
    const wanted = ["min_intra", "loss", "train loss"].filter((name) => names.indexOf(name) >= 0);
    return [...wanted, ...names].slice(0, 1);
  }

  page.runs = () => {
    // Runs that pass the filter and are not switched off.
    const off = new Set(state.off);
    return page.rows.filter((run) => !off.has(run.slug));
  };

  function grouping() {
    return [state.colour, state.dash].filter((axis) => axis && axis !== state.x);
  }

  function groups(runs) {
    // Group runs by the values of up to two settings, in the order of the values.
    const axes = grouping();
    const found = new Map();
    runs.forEach((run) => {
      const values = axes.map((axis) => run.config[axis]);
      const key = JSON.stringify(values);
      if (!found.has(key)) found.set(key, { values: values, runs: [] });
      found.get(key).runs.push(run);
    });
    const all = Array.from(found.values());
    all.sort((one, other) => {
      const place = one.values.findIndex((value, n) => value !== other.values[n]);
      return place < 0 ? 0 : nclab.order(one.values[place], other.values[place]);
    });
    const own = (which) => {
      const kinds = Array.from(new Set(all.map((one) => one.values[which]))).sort(nclab.order);
      return (value) => Math.max(0, kinds.indexOf(value));
    };
    const first = axes.indexOf(state.colour) >= 0 ? own(axes.indexOf(state.colour)) : () => 0;
    const second = axes.indexOf(state.dash) >= 0 ? own(axes.indexOf(state.dash)) : () => 0;
    all.forEach((one) => {
      const colour = axes.indexOf(state.colour) >= 0 ? one.values[axes.indexOf(state.colour)] : 0;
      const dash = axes.indexOf(state.dash) >= 0 ? one.values[axes.indexOf(state.dash)] : 0;
      const known = axes.filter((_, n) => one.values[n] !== undefined);
      one.label = known.length
        ? axes.map((axis, n) => `${axis} ${nclab.setting(one.values[n])}`).join(", ")
        : axes.length
          ? one.runs.length > 2
            ? "other runs"
            : one.runs.map((run) => run.name).join(", ")
          : "";
      one.colour = first(colour);
      one.dash = nclab.dashes[second(dash) % nclab.dashes.length];
      one.runs.forEach((run) => {
        run.shade = axes.length ? one.colour : run.place;
      });
    });
    return all;
  }

  function seriesOverTraining(metric) {
    const found = source.curves(metric, state.x);
    if (!found) return null;
    const runs = page.runs();
    const weight = Number(state.smooth) || 0;
    const made = [];
    const curvesOf = (run) =>
      (found[run.slug] || []).map((one) => ({
        layer: one.layer,
        x: one.x,
        y: nclab.smooth(one.y, weight),
      }));
    if (!grouping().length) {
      runs.forEach((run) => {
        const own = curvesOf(run);
        own.forEach((one, number) => {
          const alone = table.runs.length === 1;
          const several = own.length > 1 && one.layer;
          made.push({
            label: several ? `${page.called(run)} · ${one.layer}` : page.called(run),
            x: one.x,
            y: one.y,
            colour: alone ? number : run.place,
            dash: several ? nclab.dashes[number % nclab.dashes.length] : nclab.dash(run.place),
            width: 1.4,
          });
        });
      });
      return made;
    }
    groups(runs).forEach((group) => {
      // Keep curves of different layers or splits separate.
      const layers = new Map();
      group.runs.forEach((run) => {
        if (bad(run)) return;
        curvesOf(run).forEach((one, number) => {
          const data = state.layer === "last" ? one.layer.split(" · ")[1] || "" : one.layer;
          if (!layers.has(data)) layers.set(data, { number: number, curves: [] });
          layers.get(data).curves.push(one);
        });
      });
      layers.forEach((one, data) => {
        const spread = nclab.spread(one.curves);
        const count = one.curves.length > 1 ? ` (${one.curves.length} runs)` : "";
        made.push(
          Object.assign(spread, {
            label: `${group.label}${data ? ` · ${data}` : ""}${count}`,
            colour: group.colour,
            dash: group.dash,
            width: one.number ? 1 : 1.8,
          }),
        );
      });
    });
    return made;
  }

  function places(runs) {
    // Positions of the values of a setting: numbers at their value, words one after the other.
    const values = Array.from(new Set(runs.map((run) => run.config[state.x]))).sort(nclab.order);
    const known = values.filter((value) => value !== undefined && value !== null);
    if (known.every((value) => typeof value === "number"))
      return { names: null, of: (run) => run.config[state.x] };
    return { names: known.map(nclab.setting), of: (run) => known.indexOf(run.config[state.x]) };
  }

  function seriesAgainst(metric) {
    const runs = page.runs().filter((run) => ![undefined, null].includes(run.config[state.x]));
    const where = places(runs);
    const made = [];
    const spots = [];
    groups(runs).forEach((group) => {
      const names = Object.keys(group.runs[0].values).filter(
        (name) => name === metric || name.split(" · ")[0] === metric,
      );
      (names.length ? names : [metric]).forEach((name) => {
        const at = new Map();
        group.runs.forEach((run) => {
          const y = run.values[name];
          if (y === null || y === undefined) return;
          const x = where.of(run);
          spots.push({ x: x, y: y, run: run, colour: group.colour });
          if (bad(run)) return;
          if (!at.has(x)) at.set(x, []);
          at.get(x).push(y);
        });
        const x = Array.from(at.keys()).sort((one, other) => one - other);
        const several = x.some((value) => at.get(value).length > 1);
        const data = name.split(" · ")[1];
        const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
        made.push({
          label: [group.label || "all runs", data].filter(Boolean).join(" · "),
          x: x,
          y: x.map((value) => mean(at.get(value))),
          low: several ? x.map((value) => Math.min(...at.get(value))) : null,
          high: several ? x.map((value) => Math.max(...at.get(value))) : null,
          colour: group.colour,
          dash: data ? [2, 3] : group.dash,
        });
      });
    });
    const colours = new Set(spots.map((spot) => spot.colour));
    colours.forEach((colour) => {
      const own = spots.filter((spot) => spot.colour === colour);
      made.push({
        label: `runs ${colour}`,
        quiet: true,
        x: own.map((spot) => spot.x),
        y: own.map((spot) => spot.y),
        marks: own.map((spot) => (bad(spot.run) || spot.run.health ? "cross" : "filled")),
        size: 2.4,
        colour: colour,
        faint: true,
      });
    });
    return { series: made, names: where.names };
  }

  function words() {
    // Describe above the charts which runs they leave out.
    const runs = page.runs();
    const said = [`${runs.length} of ${table.runs.length} runs`];
    if (!overTraining()) {
      const without = runs.filter((run) => [undefined, null].includes(run.config[state.x])).length;
      if (without) said.push(`${without} without ${state.x} are not drawn`);
      if (runs.some((run) => run.health)) said.push("× not converged, dead or failed");
    }
    if (grouping().length || !overTraining()) {
      const lost = runs.filter(bad).length;
      if (lost) said.push(`${lost} failed, dead or not finite are left out of lines and bands`);
      said.push("lines are means, bands reach from the smallest to the largest");
    }
    if (Number(state.smooth)) said.push(`smoothed by ${state.smooth}`);
    return `${said.join("; ")}.`;
  }

  function changes(metric) {
    const about = table.metrics.find((one) => one.name === metric) || {};
    const shared = {
      log: Boolean(state.logy),
      xLog: Boolean(state.logx),
      xLabel: state.x,
      about: metric,
      until: overTraining() ? page.until : null,
      references:
        typeof about.ideal === "number"
          ? [{ label: `collapse: ${nclab.number(about.ideal, 3)}`, y: about.ideal }]
          : [],
      marks: [],
      xNames: null,
    };
    if (overTraining()) {
      const series = seriesOverTraining(metric);
      return Object.assign(shared, {
        series: series || [],
        empty: series ? "Nothing to draw yet." : "Loading …",
      });
    }
    const found = seriesAgainst(metric);
    return Object.assign(shared, { series: found.series, xNames: found.names });
  }

  page.draw = () => {
    groups(page.runs()); // the table shows the colours of the groups before the curves are loaded
    page.charts.forEach((one) => {
      one.chart.update(changes(one.metric));
      const about = table.metrics.find((each) => each.name === one.metric);
      one.meaning.textContent = about?.meaning || "";
    });
    at("compare-words").textContent = words();
  };

  function choices(select, values, names) {
    const before = Array.from(select.options).map((one) => `${one.value}\n${one.text}`);
    const after = values.map((value, place) => `${value}\n${names ? names[place] : value}`);
    if (before.join("\n") === after.join("\n")) return;
    const chosen = select.value;
    select.textContent = "";
    values.forEach((value, place) => {
      select.appendChild(
        nclab.element("option", { value: value, text: names ? names[place] : value }),
      );
    });
    if (values.indexOf(chosen) >= 0) select.value = chosen;
  }

  function fillPanels() {
    // One chart for every selected metric; existing charts are reused.
    while (page.charts.length > state.metrics.length) page.charts.pop().box.remove();
    state.metrics.forEach((metric, place) => {
      const known = page.charts[place];
      if (known) {
        known.metric = metric;
        return;
      }
      const select = nclab.element("select", {
        id: place ? null : "metric",
        "aria-label": `metric of chart ${place + 1}`,
      });
      const remove = nclab.element("button", {
        type: "button",
        class: "quiet",
        text: "×",
        "aria-label": `remove chart ${place + 1}`,
      });
      const meaning = nclab.element("span", { class: "note" });
      const box = nclab.element("div", { class: "panel" }, [
        nclab.element("div", { class: "panel-head" }, [select, meaning, remove]),
      ]);
      panels.appendChild(box);
      const chart = nclab.chart(box.appendChild(nclab.element("div")), {
        height: () => (page.charts.length > 1 ? 260 : 420),
        empty: "Waiting for measurements.",
      });
      const made = { box: box, chart: chart, metric: metric, select: select, meaning: meaning };
      page.charts.push(made);
      select.addEventListener("change", () => {
        state.metrics[page.charts.indexOf(made)] = select.value;
        changed();
      });
      remove.addEventListener("click", () => {
        const which = page.charts.indexOf(made);
        state.metrics.splice(which, 1);
        page.charts.splice(which, 1);
        box.remove();
        changed();
        (page.charts[0]?.select || at("add-metric")).focus();
      });
    });
    const names = table.metrics.map((one) => one.name);
    page.charts.forEach((one) => {
      choices(one.select, names);
      one.select.value = one.metric;
      one.box.querySelector("button.quiet").hidden = page.charts.length < 2;
    });
    panels.classList.toggle("single", page.charts.length < 2);
  }

  function fillControls() {
    const axes = table.axes;
    const x = ["epoch", "step", "log t", ...axes];
    choices(at("x"), x, [
      ...["over epochs", "over steps", "over log t"],
      ...axes.map((one) => `against ${one}`),
    ]);
    const names = ["none", ...axes];
    choices(at("colour"), ["", ...axes], names);
    choices(at("dash"), ["", ...axes], names);
    const layers = table.layers || [];
    choices(
      at("layer"),
      ["last", "every", ...layers.map((one) => `=${one}`)],
      ["last layer", "every layer", ...layers],
    );
    at("layer").parentNode.hidden = !source.layers;
    ["x", "colour", "dash", "layer", "smooth"].forEach((name) => {
      at(name).value = state[name] || (name === "smooth" ? 0 : state[name]);
    });
    at("logx").checked = Boolean(state.logx);
    at("logy").checked = Boolean(state.logy);
    if (document.activeElement !== at("run-filter")) at("run-filter").value = state.filter;
  }

  function changed(tableAlone) {
    // The selection changed: draw again and store the selection in the address.
    if (tableAlone) {
      page.table.fill(page.rows, state);
      nclab.writeView(state, defaults);
      return;
    }
    page.rows = nclab.filtered(table.runs, state.filter);
    fillControls();
    fillPanels();
    source.want(state);
    page.draw();
    page.table.fill(page.rows, state);
    nclab.writeView(state, defaults);
    page.state = state;
  }

  page.take = (fresh) => {
    // The message has all runs, or only those that changed.
    const first = !state;
    if (fresh.whole || first) table = Object.assign({}, fresh);
    else {
      const rows = new Map(fresh.runs.map((run) => [run.slug, run]));
      table.runs = table.runs.map((run) => rows.get(run.slug) || run);
    }
    table.runs.forEach((run, place) => {
      run.place = place;
    });
    page.known = table;
    const usual = firstView();
    if (first) {
      defaults = usual;
      state = nclab.readView(defaults);
    }
    const names = table.metrics.map((one) => one.name);
    state.metrics = state.metrics.filter((name) => !names.length || names.indexOf(name) >= 0);
    if (!state.metrics.length) state.metrics = firstMetrics();
    ["colour", "dash"].forEach((name) => {
      if (state[name] && table.axes.indexOf(state[name]) < 0) state[name] = "";
    });
    if (!overTraining() && table.axes.indexOf(state.x) < 0) state.x = "epoch";
    page.rows = nclab.filtered(table.runs, state.filter);
    page.state = state;
    fillControls();
    fillPanels();
    if (first) source.want(state);
    page.draw();
    page.table.columns(table, state);
    page.table.fill(page.rows, state);
  };

  page.table = nclab.runTable(at("run-table"), {
    link: (run) => `${source.root}runs/${encodeURIComponent(run.slug)}.html`,
    colour: (run) => (grouping().length ? (run.shade ?? run.place) : run.place),
    changed: changed,
    filter: at("run-filter"),
    count: at("run-count"),
  });

  ["x", "colour", "dash", "layer", "smooth"].forEach((name) => {
    at(name).addEventListener("input", () => {
      state[name] = name === "smooth" && at(name).value === "0" ? "" : at(name).value;
      if (name === "x" && !overTraining()) state.logx = byPowers(state.x) ? "1" : "";
      changed();
    });
  });
  ["logx", "logy"].forEach((name) => {
    at(name).addEventListener("change", () => {
      state[name] = at(name).checked ? "1" : "";
      changed();
    });
  });
  at("run-filter").addEventListener("input", () => {
    state.filter = at("run-filter").value;
    changed();
  });
  at("add-metric").addEventListener("click", () => {
    const others = table.metrics.filter((one) => state.metrics.indexOf(one.name) < 0);
    if (!others.length) return;
    state.metrics.push(others[0].name);
    changed();
    page.charts[page.charts.length - 1].select.focus();
  });
  at("save-svg").addEventListener("click", () => nclab.saveFigure(page, "svg"));
  at("save-png").addEventListener("click", () => nclab.saveFigure(page, "png"));
  at("save-csv").addEventListener("click", () => {
    nclab.save("figure.csv", nclab.figureCsv(page.charts), "text/csv");
  });
  window.addEventListener("hashchange", () => {
    if (!state) return;
    state = nclab.readView(defaults);
    if (!state.metrics.length) state.metrics = firstMetrics();
    page.table.columns(table, state);
    changed();
  });
  return page;
};

nclab.figureCsv = (charts) => {
  // The drawn points as CSV, in the format of the figures of papers.
  const lines = ["panel,series,x,y,low,high"];
  charts.forEach((one) => {
    const view = one.chart.view;
    view.series.forEach((series) => {
      if (series.quiet) return;
      series.x.forEach((x, at) => {
        const place = view.xNames ? view.xNames[x] : x;
        const band = series.low ? [series.low[at], series.high[at]] : [null, null];
        lines.push(
          [one.metric, series.label, place, series.y[at], ...band].map(nclab.csvCell).join(","),
        );
      });
    });
  });
  return `${lines.join("\n")}\n`;
};

document.addEventListener("DOMContentLoaded", () => {
  // Static report: one script holds the runs, and one script for each metric holds its curves.
  if (!document.getElementById("compare") || document.body.dataset.live) return;
  const files = {};
  const made = {};
  nclab.gotCurves = (metric, file) => {
    files[metric] = file;
    nclab.comparing.draw();
  };
  nclab.comparing = nclab.compare({
    root: "",
    layers: false,
    want: (state) => {
      state.metrics.forEach((metric) => {
        if (metric in files) return;
        files[metric] = null;
        const about = nclab.table.metrics.find((one) => one.name === metric);
        document.head.appendChild(nclab.element("script", { src: `data/curves/${about.file}.js` }));
      });
    },
    curves: (metric, place) => {
      const file = files[metric];
      if (!file) return null;
      const key = `${metric}\n${place}`;
      if (made[key]) return made[key];
      made[key] = {};
      Object.keys(file.runs).forEach((slug) => {
        made[key][slug] = file.runs[slug].map((one) => {
          const own = place in one.at ? place : "step"; // a run that does not count epochs
          return { layer: one.layer, x: file.at[one.at[own]] || [], y: one.y };
        });
      });
      return made[key];
    },
  });
  nclab.comparing.take(nclab.table);
});
