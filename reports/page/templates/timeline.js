// Starts the worker timelines of the page: choosing, scrolling, zooming, telling about spans, printing.
//
//     view (ticks, rows) <-> place of the box that scrolls --> one painting in the next frame
//
// `window.__rlbenchTimelines` has the chart of each work, by its id.

class TimelineChart {
  constructor(figure, data) {
    this.figure = figure;
    this.find = (name) => figure.querySelector(`[data-part="${name}"]`);
    this.box = this.find("box");
    this.space = this.find("space");
    this.canvas = this.find("canvas");
    this.layer = document.createElement("canvas").getContext("2d");
    this.tip = this.find("tip");
    this.runs = data.runs;
    this.view = { from: 0, to: 1, top: 0, rowHeight: 16 };
    this.selected = this.dragged = null;
    this.printing = this.isDue = false;
    this.paintings = 0;
    this.listen();
    this.choose(0);
  }

  // ---- what is shown

  choose(number) {
    this.run = new TimelineRun(this.runs[number]);
    this.selected = null;
    const { iterations, shown } = this.run;
    const slider = this.find("iteration");
    slider.max = iterations.length - 1;
    slider.disabled = iterations.length < 2;
    const has = iterations.length < 2 ? "One iteration has its" : `${iterations.length} iterations have their`;
    this.find("note").textContent = [`${has} spans in the page.`, this.run.note].filter(Boolean).join(" ");
    this.find("legend").replaceChildren(...this.legend());
    this.fitBox();
    this.showIteration(shown);
    this.box.scrollTop = this.view.top = 0;
  }

  // Offers the runs that the filters let through, and shows one of them; nothing, if none is left.
  narrow() {
    const select = this.find("run");
    const options = [...select.options];
    options.forEach((option, k) => { option.hidden = option.disabled = !letsAll(this.runs[k].facets); });
    const left = options.filter((option) => !option.disabled);
    this.figure.classList.toggle("filtered-out", !left.length);
    if (!left.length || left.includes(options[select.selectedIndex])) return;
    select.value = left[0].value;
    this.choose(Number(left[0].value));
  }

  legend() {
    const { run } = this;
    const kinds = run.kinds.map((kind, k) => [kind, run.colours[k], run.isWait(k) ? "thin" : ""]);
    const idles = run.idle < 0 && run.lanes.some((_, row) => run.isEnv(row));
    if (idles) kinds.push(["wait:inference", TIMELINE.idle, "thin"]);
    return kinds.map(([kind, colour, shape]) => {
      const [entry, swatch] = [document.createElement("li"), document.createElement("span")];
      swatch.className = shape;
      swatch.style.background = colour;
      entry.append(swatch, kind);
      return entry;
    });
  }

  showIteration(index) {
    const { begin, end } = this.run.iterations[index];
    this.show(begin, end);
  }

  // Shows the time between two moments.
  show(from, to) {
    const length = Math.min(Math.max(to - from, 40), this.run.end);
    const centre = (from + to) / 2;
    this.view.from = Math.min(Math.max(centre - length / 2, 0), this.run.end - length);
    this.view.to = this.view.from + length;
    this.placeBox();
    this.changed();
  }

  zoom(factor, centre = (this.view.from + this.view.to) / 2) {
    const { from, to } = this.view;
    this.show(centre - (centre - from) / factor, centre + (to - centre) / factor);
  }

  // After the view has changed.
  changed() {
    const index = this.run.iterationAt((this.view.from + this.view.to) / 2);
    const { number, counts } = this.run.iterations[index];
    const slider = this.find("iteration");
    slider.value = index;
    const said = `${number}${counts ? "" : " (outside the window)"}`;
    slider.setAttribute("aria-valuetext", `iteration ${said}`);
    this.find("number").textContent = said;
    this.repaint();
  }

  // ---- the box that scrolls: its content is as large as the whole timeline would be, up to what browsers can lay out

  fitBox() {
    const rows = this.find("rows").value;
    const most = Math.max(160, Math.min(560, 0.7 * innerHeight));
    const room = most - TIMELINE.axis - 18;
    this.view.rowHeight = rows === "all" ? Math.min(16, room / this.run.rows) : Number(rows);
    this.box.style.height = `${Math.min(most, TIMELINE.axis + this.run.rows * this.view.rowHeight + 18)}px`;
    this.placeBox();
    this.repaint();
  }

  // Moves the box to the view; where all of it is there, scrolling ends.
  placeBox() {
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    const length = this.view.to - this.view.from;
    this.most = Math.min(8e6, (width * (this.run.end - length)) / length); // how far it scrolls to the right
    this.space.style.width = `${width + this.most}px`;
    this.space.style.height = `${Math.max(height, TIMELINE.axis + this.run.rows * this.view.rowHeight)}px`;
    this.box.scrollLeft = this.most > 0 ? (this.view.from / (this.run.end - length)) * this.most : 0;
    this.placed = this.box.scrollLeft;
  }

  scrolled() {
    if (this.printing) return;
    this.view.top = this.box.scrollTop;
    if (Math.abs(this.box.scrollLeft - this.placed) >= 1) {
      const length = this.view.to - this.view.from;
      this.view.from = (this.box.scrollLeft / this.most) * (this.run.end - length);
      this.view.to = this.view.from + length;
      this.placed = this.box.scrollLeft;
    }
    this.tip.hidden = true;
    this.changed();
  }

  // ---- painting

  repaint() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => { this.isDue = false; if (!this.printing) this.paint(); });
  }

  paint(width = this.box.clientWidth, scale = devicePixelRatio) {
    const height = this.box.clientHeight;
    if (!width) return;
    const gutter = width < TIMELINE.narrowBelow ? TIMELINE.narrow : TIMELINE.wide;
    this.size = { width, height, gutter, scale };
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== across) this.canvas.width = across;
    if (this.canvas.height !== down) this.canvas.height = down;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const withWaits = this.find("waits").checked;
    const context = this.canvas.getContext("2d", { alpha: false });
    const painter = new TimelinePainter(context, this.layer, this.run, this.view, this.size, this.theme());
    painter.paint({ selected: this.selected, dragged: this.dragged, withWaits });
    this.paintings += 1;
    this.find("waits-note").hidden = !withWaits;
    this.find("waits-few").hidden = !withWaits || painter.seenWaits().length <= TIMELINE.mostWaits;
  }

  theme() {
    const of = getComputedStyle((this.printing && document.getElementById("light-probe")) || document.documentElement);
    const colour = (name) => of.getPropertyValue(`--${name}`).trim();
    return {
      page: colour("page"), ink: colour("ink"), dim: colour("dim"), grid: colour("grid"), line: colour("line"),
      link: colour("link"), idle: this.run.idle < 0 ? TIMELINE.idle : this.run.colours[this.run.idle],
      font: getComputedStyle(document.body).fontFamily,
    };
  }

  print() {
    this.printing = true;
    this.paint(Math.min(900, Math.max(this.box.clientWidth, 500)), 3);
  }

  printed() {
    this.printing = false;
    this.placeBox();
    this.box.scrollTop = this.view.top;
    this.repaint();
  }

  // ---- what is under the pointer, and what the keys are at

  get perTick() { return (this.size.width - this.size.gutter - TIMELINE.right) / (this.view.to - this.view.from); }

  tickAt(x) { return this.view.from + (x - this.size.gutter) / this.perTick; }

  pointed(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const row = Math.floor((y - TIMELINE.axis + this.view.top) / this.view.rowHeight);
    const isInside = x >= this.size.gutter && y >= TIMELINE.axis && row >= 0 && row < this.run.rows;
    const tick = this.tickAt(x);
    return { x, y, row, tick, isInside: isInside && tick >= 0 && tick < this.run.end };
  }

  select(selected) {
    this.selected = selected;
    const lines = selected ? this.run.about(selected.row, selected.place, selected.tick) : [];
    if (!lines.length) this.selected = null;
    this.tip.hidden = !lines.length;
    this.tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    this.repaint();
    return lines;
  }

  tell(x, y) {
    const { clientWidth: width, clientHeight: height } = this.box;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, width - this.tip.offsetWidth - 4))}px`;
    const below = y + 18 + this.tip.offsetHeight < height;
    this.tip.style.top = `${Math.max(0, below ? y + 18 : y - this.tip.offsetHeight - 10)}px`;
  }

  hovered(event) {
    const { x, y, row, tick, isInside } = this.pointed(event);
    if (this.dragged) {
      this.dragged[1] = Math.min(Math.max(x, this.size.gutter), this.size.width - TIMELINE.right);
      this.repaint();
      return;
    }
    if (this.select(isInside ? { row, place: this.run.at(row, tick), tick } : null).length) this.tell(x, y);
  }

  pressed(event) {
    const { x, isInside } = this.pointed(event);
    if (event.pointerType === "touch" || event.button !== 0 || !isInside) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.select(null);
    this.dragged = [x, x];
  }

  released() {
    if (!this.dragged) return;
    const [from, to] = this.dragged.map((x) => this.tickAt(x)).sort((a, b) => a - b);
    const isWide = Math.abs(this.dragged[1] - this.dragged[0]) > 5;
    this.dragged = null;
    if (isWide) this.show(from, to);
    else this.repaint();
  }

  // Moves to another span: by so many in its row, or to the nearest so many rows away.
  step(across, down) {
    const { run, view } = this;
    const last = this.selected ?? { row: Math.floor(view.top / view.rowHeight), place: -1, tick: view.from };
    const row = Math.min(Math.max(last.row + down, 0), run.rows - 1);
    const middle = last.place < 0 ? last.tick : (run.begins[last.place] + run.ends[last.place]) / 2;
    let place = run.from(row, middle);
    if (across && last.place >= 0) {
      place = Math.min(Math.max(last.place + across, run.first[row]), run.first[row + 1] - 1);
    }
    if (place < 0) return;
    const tick = run.begins[place];
    const lines = this.select({ row, place, tick });
    this.reveal(row, place);
    this.find("status").textContent = lines.join("; ");
    const x = this.size.gutter + (Math.max(tick, view.from) - view.from) * this.perTick;
    this.tell(x, TIMELINE.axis + row * view.rowHeight - view.top);
  }

  reveal(row, place) {
    const { from, to, rowHeight } = this.view;
    const [begin, end] = [this.run.begins[place], this.run.ends[place]];
    if (begin < from || (end > to && begin > (from + to) / 2)) {
      const centre = (begin + Math.min(end, begin + to - from)) / 2;
      this.show(centre - (to - from) / 2, centre + (to - from) / 2);
    }
    const room = this.box.clientHeight - TIMELINE.axis - rowHeight;
    this.view.top = Math.max(Math.min(this.view.top, row * rowHeight), row * rowHeight - room);
    this.box.scrollTop = this.view.top;
    this.tip.hidden = false;
  }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const centre = this.selected ? this.selected.tick : undefined;
    const doing = {
      ArrowLeft: () => this.step(-1, 0), ArrowRight: () => this.step(1, 0),
      ArrowUp: () => this.step(0, -1), ArrowDown: () => this.step(0, 1),
      "+": () => this.zoom(1.5, centre), "=": () => this.zoom(1.5, centre), "-": () => this.zoom(1 / 1.5, centre),
      0: () => this.showIteration(Number(this.find("iteration").value)), Escape: () => this.select(null),
    }[event.key];
    if (!doing) return;
    event.preventDefault();
    doing();
  }

  // ---- listening

  listen() {
    const on = (name, kind, listener) => this.find(name).addEventListener(kind, listener);
    on("run", "change", (event) => this.choose(Number(event.target.value)));
    on("iteration", "input", (event) => this.showIteration(Number(event.target.value)));
    on("rows", "change", () => this.fitBox());
    on("waits", "change", () => this.repaint());
    on("in", "click", () => this.zoom(2));
    on("out", "click", () => this.zoom(0.5));
    on("one", "click", () => this.showIteration(Number(this.find("iteration").value)));
    on("whole", "click", () => this.show(0, this.run.end));
    this.box.addEventListener("scroll", () => this.scrolled());
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.hovered(event));
    canvas.addEventListener("pointerdown", (event) => this.pressed(event));
    canvas.addEventListener("pointerup", () => this.released());
    canvas.addEventListener("pointercancel", () => { this.dragged = null; this.repaint(); });
    canvas.addEventListener("pointerleave", () => { if (!this.dragged) this.select(null); });
    canvas.addEventListener("dblclick", () => this.showIteration(Number(this.find("iteration").value)));
    canvas.addEventListener("keydown", (event) => this.keyed(event));
    canvas.addEventListener("blur", () => this.select(null));
    this.listenForPinches();
    new ResizeObserver(() => { if (!this.printing && this.run) this.fitBox(); }).observe(this.box.parentElement);
    new MutationObserver(() => this.repaint()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    addEventListener("beforeprint", () => this.print());
    addEventListener("afterprint", () => this.printed());
  }

  // A wheel with Ctrl, which is what a touchpad sends for two fingers, and two fingers on a screen.
  listenForPinches() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.1 : 0.004)), this.pointed(event).tick);
    }, { passive: false });
    let apart = 0;
    canvas.addEventListener("touchmove", (event) => {
      if (event.touches.length !== 2) { apart = 0; return; }
      event.preventDefault();
      const [a, b] = event.touches;
      const now = Math.max(20, Math.abs(a.clientX - b.clientX));
      const middle = { clientX: (a.clientX + b.clientX) / 2, clientY: a.clientY };
      if (apart) this.zoom(now / apart, this.pointed(middle).tick);
      apart = now;
    }, { passive: false });
    canvas.addEventListener("touchend", () => { apart = 0; });
  }
}

// What the page holds for the timelines: their data, by the ids of their figures.

let timelines = [];
unpacked("timelines-data").then((text) => {
  const data = JSON.parse(text);
  window.__rlbenchTimelines = Object.fromEntries(
    [...document.querySelectorAll("figure.timeline")].map((figure) => [figure.id, new TimelineChart(figure, data[figure.id])]),
  );
  timelines = Object.values(window.__rlbenchTimelines);
  for (const timeline of timelines) timeline.narrow();
});
