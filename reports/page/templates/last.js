// ---- from here on the page lives

document.getElementById("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  recolour();
});
systemDark.addEventListener("change", recolour);
for (const details of document.querySelectorAll("details")) {
  details.addEventListener("toggle", () => {
    if (details.querySelector(".plot")) drawAll();
  });
}

let wasNarrow = innerWidth < NARROW;
addEventListener("resize", () => {
  if (printing || innerWidth < NARROW === wasNarrow) return; // within a width plotly itself fits the chart
  wasNarrow = !wasNarrow;
  drawAll();
});
addEventListener("beforeprint", () => { printing = true; drawAllNow(); });
addEventListener("afterprint", () => { printing = false; drawAllNow(); });

const begin = async () => {
  recolour();
  showFirst();
  [figures] = await Promise.all([unpacked("figures-data").then(JSON.parse), unpacked("plotly").then(runScript)]);
  drawAll();
};
begin().catch((problem) => {
  for (const plot of plots) plot.textContent = `could not be drawn: ${problem}`;
});
