// The table of runs: sorting, filtering, selection of columns, CSV.
"use strict";
nclab.gotRuns = (table) => {
  nclab.table = table;
};

nclab.letters = new Intl.Collator(undefined, { numeric: true }); // slow to create

nclab.order = (one, other) => {
  // Sort numbers by size and texts by letters; missing values come last.
  const empty = (value) => value === null || value === undefined || value === "";
  if (empty(one) || empty(other)) return Number(empty(one)) - Number(empty(other));
  if (typeof one === "number" && typeof other === "number") return one - other;
  return nclab.letters.compare(String(one), String(other));
};

nclab.setting = (value) => {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? nclab.number(value, 6) : String(value);
};

nclab.cell = (run, name) => {
  // The value of a run in a column.
  if (name === "run") return run.name;
  if (name in run.config) return run.config[name];
  if (name in run.values) return run.values[name];
  return run[name];
};

nclab.filtered = (runs, text) => {
  // Filter: words, and conditions such as weight_decay>=1e-3 or norm=affine.
  const parts = text.split(/\s+/).filter(Boolean);
  const tests = parts.map((part) => {
    const found = /^(.+?)(<=|>=|!=|=|<|>)(.+)$/.exec(part);
    if (!found) {
      const word = part.toLowerCase();
      return (run) => {
        if (run.words === undefined) {
          const own = Object.keys(run.config).map((key) => `${key}=${run.config[key]}`);
          const all = [run.name, run.path, run.kind, run.state, run.health, ...own];
          run.words = all.join(" ").toLowerCase();
        }
        return run.words.indexOf(word) >= 0;
      };
    }
    const [, name, sign, wanted] = found;
    return (run) => {
      const value = nclab.cell(run, name);
      if (value === null || value === undefined) return sign === "!=";
      const size = Number(wanted.replace("−", "-"));
      const numbers = typeof value === "number" && !Number.isNaN(size);
      const one = numbers ? value : String(value).toLowerCase();
      const other = numbers ? size : wanted.toLowerCase();
      if (sign === "=") return one === other;
      if (sign === "!=") return one !== other;
      if (sign === "<") return one < other;
      if (sign === ">") return one > other;
      return sign === "<=" ? one <= other : one >= other;
    };
  });
  return tests.length ? runs.filter((run) => tests.every((test) => test(run))) : runs;
};

nclab.runTable = (box, options) => {
  // options: {link(run), colour(run), changed(), filter, count}
  const MOST = 100; // rows that are shown before the user asks for all
  const FIRST = ["accuracy", "loss", "min_intra", "max_inter", "nc1_trace_pinv"];
  const FIXED = ["state", "epoch"];
  let state = null;
  let table = null;
  let rows = [];
  let shown = [];
  let numeric = new Set();
  let all = false;
  const head = nclab.element("tr");
  const body = nclab.element("tbody");
  const chooser = nclab.element("details", { class: "chooser" }, [
    nclab.element("summary", { text: "columns" }),
    nclab.element("div", { class: "choices" }),
  ]);
  const every = nclab.element("button", { type: "button", text: "show all", hidden: "" });
  const csv = nclab.element("button", { type: "button", id: "table-csv", text: "table as CSV" });
  const on = nclab.element("button", { type: "button", id: "all", text: "draw all" });
  const none = nclab.element("button", { type: "button", id: "none", text: "draw none" });
  box.appendChild(nclab.element("div", { class: "table-tools" }, [on, none, csv, chooser]));
  box.appendChild(
    nclab.element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "runs" }, [
      nclab.element("table", { id: "runs" }, [nclab.element("thead", {}, [head]), body]),
    ]),
  );
  box.appendChild(every);

  function usual() {
    const known = new Set(table.runs.flatMap((run) => Object.keys(run.values)));
    const measured = FIRST.filter((name) => known.has(name));
    const some = measured.length ? measured : Array.from(known).slice(0, 4);
    return [...FIXED, ...table.axes, ...some];
  }

  function possible() {
    const known = new Set(table.runs.flatMap((run) => Object.keys(run.values)));
    const rest = Array.from(known).filter((name) => FIRST.indexOf(name) < 0);
    const first = FIRST.filter((name) => known.has(name));
    return [...FIXED, "kind", "records", ...table.axes, ...first, ...rest];
  }

  function isNumeric(name) {
    if (name === "state" || name === "kind" || name === "run") return false;
    return table.runs.every((run) => typeof (nclab.cell(run, name) ?? 0) === "number");
  }

  function sortBy(name) {
    // Sort ascending, then descending, then restore the order.
    const next = { [name]: `-${name}`, [`-${name}`]: "" };
    state.sort = state.sort in next ? next[state.sort] : name;
    options.changed(true);
  }

  function fillHead() {
    const ready = JSON.stringify(shown) === head.dataset.columns;
    if (!ready) {
      head.dataset.columns = JSON.stringify(shown);
      head.textContent = "";
      head.appendChild(
        nclab.element("th", { scope: "col" }, [
          nclab.element("span", { class: "unseen", text: "drawn" }),
        ]),
      );
      ["run", ...shown].forEach((name) => {
        const button = nclab.element("button", { type: "button", class: "sort", text: name });
        button.addEventListener("click", () => sortBy(name));
        head.appendChild(
          nclab.element(
            "th",
            { scope: "col", "data-column": name, class: numeric.has(name) ? "number" : null },
            [button],
          ),
        );
      });
    }
    head.querySelectorAll("[data-column]").forEach((cell) => {
      const up = state.sort === cell.dataset.column;
      const down = state.sort === `-${cell.dataset.column}`;
      cell.setAttribute("aria-sort", up ? "ascending" : down ? "descending" : "none");
    });
  }

  function fillChooser() {
    const list = chooser.lastChild;
    const names = possible();
    if (list.dataset.names !== JSON.stringify(names)) {
      list.dataset.names = JSON.stringify(names);
      list.textContent = "";
      names.forEach((name) => {
        const tick = nclab.element("input", { type: "checkbox", value: name });
        tick.addEventListener("change", () => {
          const chosen = new Set(shown);
          if (tick.checked) chosen.add(name);
          else chosen.delete(name);
          const ordered = possible().filter((one) => chosen.has(one));
          state.columns = ordered.join("|") === usual().join("|") ? null : ordered;
          columns(table, state);
          options.changed(true);
        });
        list.appendChild(nclab.element("label", {}, [tick, ` ${name}`]));
      });
    }
    list.querySelectorAll("input").forEach((tick) => {
      tick.checked = shown.indexOf(tick.value) >= 0;
    });
  }

  function columns(fresh, now) {
    table = fresh;
    state = now;
    const able = new Set(possible());
    shown = (state.columns || usual()).filter((name) => able.has(name));
    numeric = new Set(shown.filter(isNumeric));
    fillHead();
    fillChooser();
  }

  function ordered() {
    if (!state.sort) return rows;
    const down = state.sort[0] === "-";
    const name = down ? state.sort.slice(1) : state.sort;
    const value = (run) =>
      name === "state" ? `${run.state} ${run.health}` : nclab.cell(run, name);
    const empty = (one) => one === null || one === undefined;
    return rows.slice().sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (empty(a) || empty(b)) return nclab.order(a, b); // missing values come last in both orders
      return down ? nclab.order(b, a) : nclab.order(a, b);
    });
  }

  function line(run, off) {
    const tick = nclab.element("input", { type: "checkbox", "aria-label": `draw ${run.name}` });
    tick.checked = !off.has(run.slug);
    tick.addEventListener("change", () => {
      const now = new Set(state.off);
      if (tick.checked) now.delete(run.slug);
      else now.add(run.slug);
      state.off = Array.from(now);
      options.changed();
    });
    const swatch = nclab.element("span", { class: "swatch" });
    swatch.style.borderTopColor = nclab.line(options.colour(run));
    const link = nclab.element("a", { href: options.link(run), text: run.name, title: run.path });
    link.className = "run-name";
    const cells = shown.map((name) => {
      if (name === "state") return nclab.element("td", {}, [nclab.stateOf(run)]);
      const value = nclab.cell(run, name);
      const text = typeof value === "number" ? nclab.close(value) : nclab.setting(value);
      return nclab.element("td", { text: text, class: numeric.has(name) ? "number" : null });
    });
    return nclab.element("tr", { "data-run": run.slug, class: run.health ? "ill" : null }, [
      nclab.element("td", { class: "tick" }, [tick, swatch]),
      nclab.element("th", { scope: "row", class: "wrap" }, [link]),
      ...cells,
    ]);
  }

  function fill(fresh, now) {
    rows = fresh;
    state = now;
    fillHead();
    const off = new Set(state.off);
    const list = ordered();
    const held = document.activeElement?.closest?.("#runs tbody tr")?.dataset.run;
    const tag = held ? document.activeElement.tagName : "";
    const made = (all ? list : list.slice(0, MOST)).map((run) => line(run, off));
    body.replaceChildren(...made);
    if (held) {
      // Keep the keyboard focus in its row.
      const again = made.find((row) => row.dataset.run === held);
      again?.querySelector(tag.toLowerCase())?.focus({ preventScroll: true });
    }
    every.hidden = all || list.length <= MOST;
    every.textContent = `show all ${list.length} runs`;
    options.count.textContent = `${rows.length} of ${table.runs.length} runs`;
  }

  function again(whole) {
    all = whole;
    fill(rows, state);
  }
  every.addEventListener("click", () => again(true));
  window.addEventListener("beforeprint", () => again(true));
  function choose(drawn) {
    const own = new Set(rows.map((run) => run.slug));
    const rest = state.off.filter((slug) => !own.has(slug));
    state.off = drawn ? rest : [...rest, ...own];
    options.changed();
  }
  on.addEventListener("click", () => choose(true));
  none.addEventListener("click", () => choose(false));
  csv.addEventListener("click", () => {
    const names = ["run", "health", ...shown];
    const lines = ordered().map((run) => names.map((name) => nclab.csvCell(nclab.cell(run, name))));
    nclab.save(
      "runs.csv",
      `${[names, ...lines].map((one) => one.join(",")).join("\n")}\n`,
      "text/csv",
    );
  });
  nclab.onTheme(() => {
    if (state) fill(rows, state);
  });
  return { columns: columns, fill: fill };
};
