// ---- a page that is served while its sweep runs: says how far that is, and loads itself anew when a run has ended

const live = document.getElementById("live");
if (live) {
  const ask = async () => {
    try {
      const state = await (await fetch("/state")).json();
      if (state.runs !== Number(live.dataset.runs)) {
        location.reload();
        return;
      }
      const bar = live.querySelector("progress");
      live.querySelector("span").textContent = state.text;
      bar.hidden = state.fraction === null || state.over;
      if (!bar.hidden) bar.value = state.fraction;
      if (state.over) return;
    } catch {
      live.querySelector("span").textContent = "nobody serves this page any more; what it shows stays";
      return;
    }
    setTimeout(ask, 2000);
  };
  ask();
}
