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
const print = (begins) => {
  printing = begins;
  document.documentElement.classList.toggle("printing", begins); // on paper stand the first screens of all works
  drawAllNow();
};
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));

// ---- an address with `#figure-…` leads there, also where that is not shown at first, filtered out, or folded

const reveal = () => {
  const target = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
  if (!target) return;
  if (unhide(target)) narrow(() => target.scrollIntoView()); // charts above it have their heights when they are drawn
  for (let each = target.parentElement; each; each = each.parentElement) {
    if (each.tagName === "DETAILS") each.open = true;
  }
  target.scrollIntoView();
};
addEventListener("hashchange", reveal);

const begin = async () => {
  recolour();
  if (live) takeRead();
  else showFirst();
  [figures] = await Promise.all([unpacked("figures-data").then(JSON.parse), unpacked("plotly").then(runScript)]);
  drawAll(reveal); // charts have their heights only when they are drawn
};
begin().catch((problem) => {
  for (const plot of plots) plot.textContent = `could not be drawn: ${problem}`;
});
