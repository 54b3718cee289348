// The table of claims, filtered by verdict, paper, author and words.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("claim-filter");
  if (!form) return;
  const rows = Array.from(document.querySelectorAll("#claims tbody tr"));
  const count = document.getElementById("claim-count");
  const words = form.querySelector("[name=words]");
  const paper = form.querySelector("[name=paper]");
  const whose = form.querySelector("[name=whose]");
  const verdicts = Array.from(form.querySelectorAll("[name=verdict]"));

  function apply() {
    const wanted = verdicts.filter((one) => one.checked).map((one) => one.value);
    const needles = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row) => {
      // Also search the source text, so that "epsilon" finds a typeset ε.
      const text = `${row.textContent} ${row.dataset.words}`.toLowerCase();
      const fits =
        (!wanted.length || wanted.indexOf(row.dataset.verdict) >= 0) &&
        (!paper.value || row.dataset.paper === paper.value) &&
        (!whose.value || row.dataset.whose === whose.value) &&
        needles.every((needle) => text.indexOf(needle) >= 0);
      row.hidden = !fits;
      if (fits) shown++;
    });
    count.textContent = `${shown} of ${rows.length}`;
  }
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
  });
  form.addEventListener("reset", () => {
    window.setTimeout(apply);
  });
  // A link may select one verdict, and statements of papers or our own findings.
  const asked = new URLSearchParams(
    window.location.search || window.location.hash.replace("#", ""),
  );
  verdicts.forEach((one) => {
    if (one.value === asked.get("verdict")) one.checked = true;
  });
  whose.value = ["papers", "ours"].indexOf(asked.get("whose")) >= 0 ? asked.get("whose") : "";
  apply();
});
