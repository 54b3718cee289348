// Figures as files: a canvas-like pen that writes SVG, and sheets of several charts.
"use strict";

nclab.svgPen = (width, height) => {
  const parts = [];
  const kept = [];
  const ruler = document.createElement("canvas").getContext("2d");
  let path = "";
  let open = 0;
  let dash = [];
  let clips = 0;
  const names = ["strokeStyle", "fillStyle", "lineWidth", "font", "textAlign", "textBaseline"];
  const n = (value) => String(Math.round(value * 100) / 100);
  const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const quoted = (text) => safe(text).replace(/"/g, "&quot;");
  const lines = {
    middle: "central",
    top: "text-before-edge",
    bottom: "text-after-edge",
    alphabetic: "alphabetic",
  };
  const pen = {
    strokeStyle: "#000",
    fillStyle: "#000",
    lineWidth: 1,
    font: "11px sans-serif",
    textAlign: "left",
    textBaseline: "alphabetic",
    globalAlpha: 1,
    lineJoin: "round",
    beginPath: () => {
      path = "";
    },
    moveTo: (x, y) => {
      path += `M${n(x)} ${n(y)}`;
    },
    lineTo: (x, y) => {
      path += `L${n(x)} ${n(y)}`;
    },
    closePath: () => {
      path += "Z";
    },
    rect: (x, y, wide, tall) => {
      path += `M${n(x)} ${n(y)}h${n(wide)}v${n(tall)}h${n(-wide)}Z`;
    },
    arc: (x, y, size) => {
      // Only whole circles are supported.
      path += `M${n(x - size)} ${n(y)}a${n(size)} ${n(size)} 0 1 0 ${n(2 * size)} 0`;
      path += `a${n(size)} ${n(size)} 0 1 0 ${n(-2 * size)} 0`;
    },
    stroke: () => {
      const broken = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
      put(`fill="none" stroke="${pen.strokeStyle}" stroke-width="${n(pen.lineWidth)}"${broken}`);
    },
    fill: () => {
      put(`fill="${pen.fillStyle}"`);
    },
    fillRect: (x, y, wide, tall) => {
      path = "";
      pen.rect(x, y, wide, tall);
      pen.fill();
    },
    clearRect: () => {},
    setLineDash: (marks) => {
      dash = marks;
    },
    fillText: (text, x, y) => {
      if (!text) return;
      const anchor = { left: "start", center: "middle", right: "end" }[pen.textAlign];
      parts.push(
        `<text x="${n(x)}" y="${n(y)}" fill="${pen.fillStyle}" text-anchor="${anchor}" ` +
          `dominant-baseline="${lines[pen.textBaseline]}" style="font:${quoted(pen.font)}">` +
          `${safe(text)}</text>`,
      );
    },
    measureText: (text) => {
      ruler.font = pen.font;
      return ruler.measureText(text);
    },
    save: () => {
      kept.push({ open: open, dash: dash, style: names.map((name) => pen[name]) });
      open = 0;
    },
    restore: () => {
      parts.push("</g>".repeat(open));
      const before = kept.pop();
      open = before.open;
      dash = before.dash;
      names.forEach((name, place) => {
        pen[name] = before.style[place];
      });
    },
    translate: (x, y) => group(`transform="translate(${n(x)} ${n(y)})"`),
    rotate: (angle) => group(`transform="rotate(${n((angle * 180) / Math.PI)})"`),
    clip: () => {
      clips++;
      parts.push(`<clipPath id="clip${clips}"><path d="${path}"/></clipPath>`);
      group(`clip-path="url(#clip${clips})"`);
    },
    text: () =>
      `<svg xmlns="http://www.w3.org/2000/svg" width="${n(width)}" height="${n(height)}" ` +
      `viewBox="0 0 ${n(width)} ${n(height)}">${parts.join("\n")}</svg>\n`,
  };
  function put(style) {
    if (!path) return;
    const faint = pen.globalAlpha < 1 ? ` opacity="${n(pen.globalAlpha)}"` : "";
    parts.push(`<path d="${path}" ${style}${faint}/>`);
  }
  function group(attributes) {
    parts.push(`<g ${attributes}>`);
    open++;
  }
  return pen;
};

nclab.saveFigure = (page, kind, name = "figure") => {
  // All charts on one sheet, each with its title, above the shared legend.
  const wide = 520;
  const tall = 320;
  const many = Math.min(page.charts.length, 3);
  const rows = Math.ceil(page.charts.length / many);
  const named = page.charts[0].chart.view.series.filter((one) => one.label && !one.quiet);
  const shown = named.slice(0, 40);
  const width = wide * many;
  const entry = Math.floor(width / 260);
  const height = rows * (tall + 30) + 20 * Math.ceil(shown.length / entry) + 16;
  const paper = nclab.paper();
  function paint(pen) {
    pen.fillStyle = paper.background;
    pen.fillRect(0, 0, width, height);
    page.charts.forEach((one, place) => {
      pen.save();
      pen.translate(wide * (place % many), (tall + 30) * Math.floor(place / many));
      pen.fillStyle = paper.ink;
      pen.font = "bold 13px system-ui, sans-serif";
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.fillText(one.metric, 14, 15);
      pen.translate(0, 28);
      one.chart.paint(pen, wide, tall);
      pen.restore();
    });
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    shown.forEach((one, place) => {
      const x = 14 + 260 * (place % entry);
      const y = rows * (tall + 30) + 12 + 20 * Math.floor(place / entry);
      pen.strokeStyle = nclab.seriesColour(one);
      pen.lineWidth = 2;
      pen.setLineDash(one.dash || []);
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(x + 22, y);
      pen.stroke();
      pen.setLineDash([]);
      pen.fillStyle = paper.ink;
      pen.fillText(one.label.length > 34 ? `${one.label.slice(0, 33)}…` : one.label, x + 28, y);
    });
  }
  if (kind === "svg") {
    const pen = nclab.svgPen(width, height);
    paint(pen);
    nclab.save(`${name}.svg`, pen.text(), "image/svg+xml");
  } else {
    const canvas = nclab.element("canvas", { width: 2 * width, height: 2 * height });
    const pen = canvas.getContext("2d");
    pen.scale(2, 2);
    paint(pen);
    canvas.toBlob((blob) => nclab.save(`${name}.png`, blob, "image/png"));
  }
  // Restore the layout of each chart for the screen.
  page.charts.forEach((one) => {
    one.chart.update({});
  });
};
