// ---- a page that is served while its sweep runs: says how far that is, and loads itself anew when a run has ended

const live = document.getElementById("live");
if (live) {
  const ask = async () => {
    try {
      const answer = await fetch("/state");
      if (!answer.ok) throw new Error(await answer.text());
      const state = await answer.json();
      if (state.runs !== Number(live.dataset.runs)) {
        keepChosen();
        location.reload();
        return;
      }
      const bar = live.querySelector("progress");
      live.querySelector("span").textContent = state.text;
      bar.hidden = state.fraction === null || state.over;
      if (!bar.hidden) bar.value = state.fraction;
      if (state.over) return;
    } catch (problem) {
      live.querySelector("span").textContent = `no answer (${problem.message}); what the page shows stays`;
    }
    setTimeout(ask, 2000);
  };
  ask();
}
