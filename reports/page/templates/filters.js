// ---- filters: buttons of values, which hold for all charts and tables

const first = () => [...document.querySelectorAll(".first")];
let firstAsked = null; // the id of the work that a reader has chosen to see first
const oneAsked = new Set(); // the ids of the charts that a reader has asked for, of those of which one is shown

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

// Of charts of one name, shows the one that was asked for, or else that on the most GPUs, if they are let through.
const showOneOf = () => {
  const all = [...document.querySelectorAll("[data-one-of]")];
  const left = all.filter((each) => letsAll(each.dataset));
  const shown = new Map();
  for (const each of [...left.filter(({ id }) => oneAsked.has(id)), ...left]) {
    if (!shown.has(each.dataset.oneOf)) shown.set(each.dataset.oneOf, each);
  }
  for (const each of all) each.toggleAttribute("data-later", shown.get(each.dataset.oneOf) !== each);
};

// Shows what the filters let through, draws it, and then does what is to be done then.
const narrow = (then) => {
  for (const button of document.querySelectorAll("fieldset[data-facet] button")) {
    button.setAttribute("aria-pressed", String(lets(button.parentElement.dataset.facet, button.dataset.value)));
  }
  showFirst();
  showOneOf();
  for (const each of document.querySelectorAll("figure.chart, .tile, .rival, .stage [data-system], .totals, tbody tr, details.facts, .told > div")) {
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
  for (const each of document.querySelectorAll("#systems > .matrix, #systems > details")) {
    const heads = [...each.querySelectorAll("th[data-gpus]")];
    const isLeft = each.querySelector("tbody tr:not(.filtered-out)") && !(heads.length && heads.every((head) => head.hidden));
    each.classList.toggle("filtered-out", !isLeft);
  }
  for (const counted of document.querySelectorAll("[data-rows]")) {
    const rows = [...counted.closest("details").querySelectorAll("tbody tr")];
    const left = rows.filter((row) => !row.classList.contains("filtered-out")).length;
    counted.textContent = left < rows.length ? `${left} of ${counted.dataset.rows}` : counted.dataset.rows;
  }
  for (const each of document.querySelectorAll(".all-gpus")) each.classList.toggle("filtered-out", chosen.gpus !== null);
  for (const timeline of timelines) timeline.narrow();
  const narrowed = facets.filter((facet) => chosen[facet] !== null);
  const said = document.getElementById("filtered");
  if (said) said.textContent = narrowed.length ? `(narrowed by ${narrowed.join(", ")})` : "";
  drawAll(then);
};

// Lifts what hides an element: filters, another work, another chart of its name. Whether anything did.
const unhide = (target) => {
  const above = [];
  for (let each = target; each; each = each.parentElement) above.push(each);
  const hiding = facets.filter((facet) => above.some((each) => !lets(facet, each.dataset[facet])));
  if (target.closest("figure.single")) hiding.push("gpus"); // a chart over GPUs needs several
  for (const facet of hiding) chosen[facet] = null;
  const [work, one] = [target.closest(".first[data-later]"), target.closest("[data-one-of][data-later]")];
  if (work) firstAsked = work.id;
  if (one) {
    for (const other of document.querySelectorAll(`[data-one-of="${CSS.escape(one.dataset.oneOf)}"]`)) oneAsked.delete(other.id);
    oneAsked.add(one.id);
  }
  return Boolean(hiding.length || work || one);
};

for (const fieldset of document.querySelectorAll("fieldset[data-facet]")) {
  const facet = fieldset.dataset.facet;
  const buttons = [...fieldset.querySelectorAll("button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const left = new Set(chosen[facet]); // none: the first click shows one alone
      if (!left.delete(button.dataset.value)) left.add(button.dataset.value);
      chosen[facet] = left.size % buttons.length ? left : null; // all, or none, is all
      narrow();
    });
  }
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
  for (const [facet, values] of kept) chosen[facet] = values && new Set(values);
  narrow();
};
const bar = document.querySelector(".filters");
if (bar) {
  new ResizeObserver(() => { // what a link leads to stands below it
    document.documentElement.style.scrollPaddingTop = `${bar.offsetHeight + 8}px`;
  }).observe(bar);
}
if (innerWidth < NARROW) document.querySelector(".filters details")?.removeAttribute("open");
