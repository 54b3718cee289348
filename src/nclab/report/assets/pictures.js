// Figures of runs, drawn by the page from their numbers.
"use strict";
nclab.pictures = {};
nclab.addPicture = (id, picture) => {
  nclab.pictures[id] = picture;
};

nclab.pictureSeries = (one) => ({
  label: one.label,
  x: one.x,
  y: one.y,
  low: one.low,
  high: one.high,
  colour: one.colour,
  ink: one.marker === "cross",
  marks: one.style === "none" ? one.marker : null,
  dash: { dashed: [6, 3], dotted: [2, 3] }[one.style] || [],
});

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-picture]").forEach((box) => {
    const picture = nclab.pictures[box.dataset.picture];
    if (!picture) return;
    const charts = picture.panels.map((panel) => {
      const card = box.appendChild(
        nclab.element("div", { class: "panel" }, [nclab.element("h4", { text: panel.title })]),
      );
      const chart = nclab.chart(card.appendChild(nclab.element("div")), {
        height: 220,
        about: panel.title,
        xLabel: panel.x_label,
        yLabel: panel.y_label,
        xLog: panel.x_scale === "log",
        log: panel.y_scale === "log",
        xNames: panel.x_names.length ? panel.x_names : null,
        xTicks: panel.x_ticks,
        series: panel.series.map(nclab.pictureSeries),
        references: panel.references.filter((one) => one.y !== null),
      });
      return { chart: chart, metric: panel.title };
    });
    box.dataset.drawn = "yes";
    const save = document.querySelector(`[data-save="${box.dataset.picture}"]`);
    save.addEventListener("click", () => {
      nclab.saveFigure({ charts: charts }, "svg", box.dataset.picture);
    });
  });
});
