// ---- a page that is served while its sweep runs: says how far that is, and loads itself anew when a run has ended;
// goes on when the sweep is over, since --resume may take it up again

const live = document.getElementById("live");

// What is folded, by names that hold when more runs have ended: without the counts behind them.
const folds = () => {
  const found = new Map();
  for (const details of document.querySelectorAll("details")) {
    const text = details.querySelector("summary").textContent.replace(/\s*\([^)]*\)\s*$/, "");
    const name = JSON.stringify([details.closest("[id]")?.id, { ...details.dataset }, text]);
    let number = 0;
    while (found.has(name + number)) number += 1;
    found.set(name + number, details);
  }
  return found;
};

// What a reader has chosen, folded and opened outlives the loading.
const keepRead = () => {
  keepChosen();
  const open = [...folds()].map(([name, details]) => [name, details.open]);
  sessionStorage.setItem("read", JSON.stringify({ open, theme: document.documentElement.dataset.theme }));
};
const takeRead = () => {
  const { open = [], theme } = JSON.parse(sessionStorage.getItem("read") ?? "{}");
  sessionStorage.removeItem("read");
  if (theme) {
    document.documentElement.dataset.theme = theme;
    recolour();
  }
  const found = folds();
  for (const [name, isOpen] of open) found.get(name)?.toggleAttribute("open", isOpen);
  takeChosen();
};

if (live) {
  const ask = async () => {
    try {
      const answer = await fetch("/state");
      if (!answer.ok) throw new Error(await answer.text());
      const state = await answer.json();
      if (state.runs !== Number(live.dataset.runs)) {
        keepRead();
        location.reload();
        return;
      }
      const bar = live.querySelector("progress");
      live.querySelector("span").textContent = state.text;
      bar.hidden = state.fraction === null || state.over;
      if (!bar.hidden) bar.value = state.fraction;
    } catch (problem) {
      live.querySelector("span").textContent = `no answer (${problem.message}); what the page shows stays`;
    }
    setTimeout(ask, 2000);
  };
  ask();
}
