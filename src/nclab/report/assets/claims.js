// The table of claims, narrowed by verdict, paper and words.
"use strict";
document.addEventListener("DOMContentLoaded", function () {
  var form = document.getElementById("claim-filter");
  if (!form) return;
  var rows = Array.from(document.querySelectorAll("#claims tbody tr")), count = document.getElementById("claim-count");
  var words = form.querySelector("[name=words]"), paper = form.querySelector("[name=paper]");
  var verdicts = Array.from(form.querySelectorAll("[name=verdict]"));

  function apply() {
    var wanted = verdicts.filter(function (one) { return one.checked; }).map(function (one) { return one.value; });
    var needles = words.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
    rows.forEach(function (row) {
      var text = row.textContent.toLowerCase();
      var fits = (!wanted.length || wanted.indexOf(row.dataset.verdict) >= 0) &&
        (!paper.value || row.dataset.paper === paper.value) &&
        needles.every(function (needle) { return text.indexOf(needle) >= 0; });
      row.hidden = !fits;
      if (fits) shown++;
    });
    count.textContent = shown + " of " + rows.length;
  }
  form.addEventListener("input", apply);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("reset", function () { window.setTimeout(apply); });
  // A link from elsewhere may ask for one verdict.
  var asked = new URLSearchParams(window.location.search).get("verdict") || decodeURIComponent(window.location.hash.replace("#verdict=", ""));
  verdicts.forEach(function (one) { if (one.value === asked) one.checked = true; });
  apply();
});
