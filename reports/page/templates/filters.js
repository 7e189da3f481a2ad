// ---- filters: buttons of values, which hold for all charts and tables

const first = () => [...document.querySelectorAll(".first")];
let firstAsked = null; // the id of the work that a reader has chosen to see first

// Of a work, the tiles of the first cell that is let through, on the most GPUs; none, if all are hidden.
const tilesOf = (work) => {
  const all = letsAll(work.dataset) ? [...work.querySelectorAll(".tiles")] : [];
  const left = all.filter((tiles) => letsAll(tiles.dataset) && letsAll(tiles.parentElement.dataset));
  return left.find((tiles) => tiles.parentElement === left.at(-1).parentElement);
};

const showFirst = () => {
  const left = first().filter(tilesOf);
  const shown = left.find((each) => each.id === firstAsked) ?? left[0];
  for (const each of first()) each.toggleAttribute("data-later", each !== shown);
  for (const button of document.querySelectorAll("[data-first]")) {
    button.hidden = !left.some((each) => each.id === button.dataset.first);
    button.setAttribute("aria-pressed", String(shown !== undefined && button.dataset.first === shown.id));
  }
  for (const each of first()) {
    const told = tilesOf(each);
    for (const tiles of each.querySelectorAll(".tiles")) tiles.toggleAttribute("data-later", tiles !== told);
    for (const verdict of each.querySelectorAll(".verdict")) {
      verdict.toggleAttribute("data-later", verdict.dataset.gpus !== told?.parentElement.dataset.gpus);
    }
  }
};

// Of charts of one name, shows the first that is let through: that on the most GPUs.
const showOneOf = () => {
  const shown = new Set();
  for (const each of document.querySelectorAll("[data-one-of]")) {
    const isShown = letsAll(each.dataset) && !shown.has(each.dataset.oneOf);
    each.toggleAttribute("data-later", !isShown);
    if (isShown) shown.add(each.dataset.oneOf);
  }
};

const narrow = () => {
  showFirst();
  showOneOf();
  for (const each of document.querySelectorAll("figure.chart, .tile, .rival, .stage [data-system], tbody tr, details.facts, .told > div")) {
    each.classList.toggle("filtered-out", !letsAll(each.dataset));
  }
  for (const stage of document.querySelectorAll(".stage")) {
    stage.classList.toggle("filtered-out", !stage.querySelector("[data-system]:not(.filtered-out)"));
  }
  for (const table of document.querySelectorAll(".matrix table")) {
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (!("gpus" in head.dataset)) return;
      for (const row of table.rows) row.cells[at].hidden = !lets("gpus", head.dataset.gpus);
    });
  }
  const narrowed = facets.filter((facet) => chosen[facet] !== null);
  const said = document.getElementById("filtered");
  if (said) said.textContent = narrowed.length ? `(narrowed by ${narrowed.join(", ")})` : "";
  drawAll();
};

for (const fieldset of document.querySelectorAll("fieldset[data-facet]")) {
  const facet = fieldset.dataset.facet;
  const buttons = [...fieldset.querySelectorAll("button")];
  const on = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, pressed) => button.setAttribute("aria-pressed", String(pressed));
  for (const button of buttons) {
    button.addEventListener("click", () => {
      if (buttons.every(on)) buttons.forEach((each) => press(each, each === button)); // the first click shows it alone
      else press(button, !on(button));
      if (!buttons.some(on)) buttons.forEach((each) => press(each, true));
      chosen[facet] = buttons.every(on) ? null : new Set(buttons.filter(on).map((each) => each.dataset.value));
      narrow();
    });
  }
  document.getElementById("all").addEventListener("click", () => buttons.forEach((button) => press(button, true)));
}
document.getElementById("all")?.addEventListener("click", () => {
  for (const facet of facets) chosen[facet] = null;
  narrow();
});
for (const button of document.querySelectorAll("[data-first]")) {
  button.addEventListener("click", () => {
    firstAsked = button.dataset.first;
    narrow();
  });
}
// What was chosen, kept over one reload of a page that renews itself.
const keepChosen = () => {
  const kept = facets.map((facet) => [facet, chosen[facet] && [...chosen[facet]]]);
  sessionStorage.setItem("chosen", JSON.stringify({ firstAsked, kept }));
};
const takeChosen = () => {
  const { firstAsked: asked = null, kept = [] } = JSON.parse(sessionStorage.getItem("chosen") ?? "{}");
  sessionStorage.removeItem("chosen");
  firstAsked = asked;
  for (const [facet, values] of kept) {
    chosen[facet] = values && new Set(values);
    for (const button of document.querySelectorAll(`fieldset[data-facet="${facet}"] button`)) {
      button.setAttribute("aria-pressed", String(lets(facet, button.dataset.value)));
    }
  }
  narrow();
};
if (innerWidth < NARROW) document.querySelector(".filters details")?.removeAttribute("open");
