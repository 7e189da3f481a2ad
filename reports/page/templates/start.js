// The page's script: `start.js` unpacks what the page holds, `charts.js` draws, `filters.js` narrows, `tables.js` sorts
// and copies, `timeline.js` draws worker timelines. They share one scope, in this order.
// `window.__rlbenchCharts` says of each chart whether it has been drawn; hidden ones are drawn when they are shown.

const textOf = (id) => document.getElementById(id).textContent;

// What the page holds under an id: a zlib stream in base64.
const unpacked = async (id) => {
  const bytes = Uint8Array.from(atob(textOf(id)), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
};

const runScript = (text) => {
  const script = document.createElement("script");
  script.textContent = text; // the page's policy has its hash
  document.head.append(script);
};

// ---- colours of the page

const asked = /theme=(light|dark)/.exec(location.hash);
if (asked) document.documentElement.dataset.theme = asked[1];
const systemDark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemDark.matches;
};

// The page's colour of this name; on paper that of the light page.
const colourOf = (name) =>
  getComputedStyle(printing ? document.getElementById("light-probe") : document.documentElement)
    .getPropertyValue(`--${name}`).trim();

// ---- what the filters let through

const facets = ["system", "scenario", "workload", "gpus", "device"];
const chosen = Object.fromEntries(facets.map((facet) => [facet, null])); // a set of texts; null is all of them

const lets = (facet, value) => value === undefined || chosen[facet] === null || chosen[facet].has(String(value));
const letsAll = (of) => facets.every((facet) => Array.isArray(of[facet]) || lets(facet, of[facet]));

// ---- files

const handOut = (name, text, type) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
const files = {
  "summary.json": async () => [await unpacked("summary-data"), "application/json"],
  "cells.csv": async () => [JSON.parse(await unpacked("csv-data")).cells, "text/csv"],
  "runs.csv": async () => [JSON.parse(await unpacked("csv-data")).runs, "text/csv"],
};
for (const button of document.querySelectorAll("[data-download]")) {
  const name = button.dataset.download;
  button.addEventListener("click", async () => handOut(name, ...(await files[name]())));
}
