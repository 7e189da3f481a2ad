// Paints what can be seen of a run's timeline on a canvas. It keeps nothing: the same view is painted the same.

const TIMELINE = {
  axis: 36, // pixels above the rows: the iterations' names, then times
  right: 10,
  wide: 158, // pixels for the rows' names
  narrow: 92,
  narrowBelow: 600,
  namedFrom: 11, // pixels of a row that has a name
  mostWaits: 300, // arrows that can be told apart
  idleFrom: 3, // the device's pixels of a row in which an environment that does nothing has a line
  idle: "#9AA0A6", // an environment that does nothing waits for its next action
};

// `layer` is the context of another canvas, for spans. `view` has `from` and `to` in ticks, `top` and `rowHeight` in
// pixels; `size` has width, height, `gutter` and how many of the device's pixels (`scale`) one of the page has; `theme`
// has colours.
class TimelinePainter {
  constructor(context, layer, run, view, size, theme) {
    Object.assign(this, { context, layer, run, view, size, theme });
    this.perTick = (size.width - size.gutter - TIMELINE.right) / (view.to - view.from);
    this.firstRow = Math.max(0, Math.floor(view.top / view.rowHeight));
    const seen = (size.height - TIMELINE.axis) / view.rowHeight;
    this.lastRow = Math.min(run.rows - 1, Math.ceil(this.firstRow + seen));
  }

  x(tick) { return this.size.gutter + (tick - this.view.from) * this.perTick; }

  y(row) { return TIMELINE.axis + row * this.view.rowHeight - this.view.top; }

  paint({ selected, dragged, withWaits }) {
    const { context, size } = this;
    context.setTransform(size.scale, 0, 0, size.scale, 0, 0);
    context.fillStyle = this.theme.page;
    context.fillRect(0, 0, size.width, size.height);
    context.font = `12px ${this.theme.font}`;
    context.textBaseline = "middle";
    this.paintAxis();
    this.inside(TIMELINE.axis, () => this.paintSpans());
    if (withWaits) this.inside(TIMELINE.axis, () => this.paintWaits());
    if (selected) this.inside(TIMELINE.axis, () => this.paintSelected(selected));
    if (dragged) this.paintDragged(dragged);
    this.paintNames();
  }

  // Paints only right of the names and below a height.
  inside(top, paint) {
    const { context, size } = this;
    context.save();
    context.beginPath();
    context.rect(size.gutter, top, size.width - size.gutter, size.height - top);
    context.clip();
    paint();
    context.restore();
  }

  // Times are those since each iteration's begin.
  paintAxis() {
    const { context, run, theme, view, size } = this;
    const step = this.step();
    const [unit, digits] = step < 0.01 ? ["ms", Math.max(0, -Math.floor(Math.log10(step * 1000)))]
      : ["s", Math.max(0, -Math.floor(Math.log10(step)))];
    const write = (seconds) => `${(seconds * (unit === "ms" ? 1000 : 1)).toFixed(digits)} ${unit}`;
    this.inside(0, () => {
      for (const { number, begin, end, counts, cut } of run.iterations) {
        if (end < view.from || begin > view.to) continue;
        const [left, right] = [this.x(begin), this.x(end)];
        context.strokeStyle = theme.dim;
        this.line(left, 0, left, size.height);
        this.line(right, 0, right, size.height);
        const name = `iteration ${number}${cut ? ", its end" : ""}${counts ? "" : ", outside the window"}`;
        const from = Math.max(left, size.gutter) + 5;
        const room = Math.min(right, size.width) - from;
        context.fillStyle = theme.ink;
        if (room > context.measureText(`iteration ${number}`).width) context.fillText(name, from, 9, room);
        context.strokeStyle = theme.grid;
        context.fillStyle = theme.dim;
        const first = Math.max(0, Math.ceil(((view.from - begin) * run.tick) / step));
        const most = Math.min(end, view.to);
        for (let k = first; begin + (k * step) / run.tick <= most; k++) {
          const x = this.x(begin + (k * step) / run.tick);
          if (k > 0) this.line(x, 20, x, size.height);
          const text = write(k * step);
          if (x + 4 + context.measureText(text).width < Math.min(right, size.width)) context.fillText(text, x + 4, 27);
        }
      }
    });
  }

  // Seconds from one time on the axis to the next: 1, 2 or 5 times a power of ten, 90 pixels or more.
  step() {
    const least = (90 / this.perTick) * this.run.tick;
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least);
  }

  line(x0, y0, x1, y1) {
    const { context, size } = this;
    const half = 0.5 / size.scale;
    const sharp = (value) => Math.round(value * size.scale) / size.scale + half;
    context.lineWidth = 1 / size.scale;
    context.beginPath();
    context.moveTo(sharp(x0), sharp(y0));
    context.lineTo(sharp(x1), sharp(y1));
    context.stroke();
  }

  // In pixels of the device, one by one, on a layer: a canvas that fills 100,000 boxes takes a tenth of a second. The
  // ranks' threads come last, so that they are seen where several rows share a pixel.
  paintSpans() {
    const { run, size } = this;
    const [left, top] = [Math.round(size.gutter * size.scale), Math.round(TIMELINE.axis * size.scale)];
    const layer = this.layer.canvas;
    const [across, down] = [Math.round(size.width * size.scale) - left, Math.round(size.height * size.scale) - top];
    if (across < 1 || down < 1) return;
    if (layer.width !== across || layer.height !== down) [layer.width, layer.height] = [across, down];
    const image = this.layer.createImageData(across, down);
    const area = { pixels: new Uint32Array(image.data.buffer), across, down, left, top };
    const colours = run.colours.map((colour) => TimelinePainter.pixel(colour, 255));
    const idle = TimelinePainter.pixel(this.theme.idle, 150);
    for (const threads of [false, true]) {
      for (let row = this.firstRow; row <= this.lastRow; row++) {
        if (run.isEnv(row) !== threads) this.fillRow(row, area, colours, idle);
      }
    }
    this.layer.putImageData(image, 0, 0);
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.drawImage(layer, left, top);
    this.context.setTransform(size.scale, 0, 0, size.scale, 0, 0);
  }

  // A colour `#rrggbb` as image data has it: red first, on the little-endian machines that browsers run on.
  static pixel(colour, opacity) {
    const value = parseInt(colour.slice(1), 16);
    return ((opacity << 24) | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
  }

  static fill({ pixels, across, down }, left, right, top, high, colour) {
    for (let y = Math.max(0, top); y < Math.min(down, top + high); y++) {
      pixels.fill(colour, y * across + left, y * across + right);
    }
  }

  // Spans that end in one pixel are one, in the colour of the longest.
  fillRow(row, area, colours, idle) {
    const { run, view, size } = this;
    const top = Math.round(this.y(row) * size.scale) - area.top;
    const whole = Math.round(this.y(row + 1) * size.scale) - area.top - top;
    const thick = Math.max(1, whole - Math.round(Math.min(3, view.rowHeight / 5) * size.scale));
    const offset = (tick) => Math.min(Math.max(Math.round(this.x(tick) * size.scale) - area.left, 0), area.across);
    const fill = (left, right, high, colour) => (
      TimelinePainter.fill(area, left, right, top + ((thick - high) >> 1), high, colour)
    );
    if (run.isEnv(row) && whole >= TIMELINE.idleFrom) {
      fill(offset(0), offset(run.end), Math.max(1, Math.round(thick * 0.15)), idle);
    }
    const thin = Math.max(1, Math.round(thick * 0.35));
    for (let k = run.endingAfter(row, view.from); k < run.first[row + 1] && run.begins[k] < view.to; k++) {
      const left = offset(run.begins[k]);
      let right = offset(run.ends[k]);
      let longest = k;
      if (right <= left) {
        right = Math.min(left + 1, area.across);
        while (k + 1 < run.first[row + 1] && run.begins[k + 1] < view.to && offset(run.ends[k + 1]) <= right) {
          k += 1;
          if (run.ends[k] - run.begins[k] > run.ends[longest] - run.begins[longest]) longest = k;
        }
      }
      const kind = run.kindOf[longest];
      fill(left, right, run.isWait(kind) ? thin : thick, colours[kind]);
    }
  }

  // Arrows from where something was done to where the wait for it ended; the chain that led to the end is bold.
  paintWaits() {
    const seen = this.seenWaits();
    this.context.lineJoin = "round";
    this.arrows(seen.length <= TIMELINE.mostWaits ? seen : [], this.theme.ink, 1);
    this.arrows(this.run.path.filter((wait) => this.isSeen(wait)), this.theme.link, 2);
  }

  seenWaits() { return this.run.waits.filter((wait) => this.isSeen(wait)); }

  isSeen({ row, at, other, done }) {
    return at >= this.view.from && done <= this.view.to
      && Math.max(row, other) >= this.firstRow && Math.min(row, other) <= this.lastRow;
  }

  arrows(waits, colour, width) {
    const { context, view } = this;
    const middle = (view.rowHeight - Math.min(3, view.rowHeight / 5)) / 2;
    const head = Math.min(5, 1.5 + view.rowHeight / 4);
    for (const [outline, style] of [[width + 2, this.theme.page], [width, colour]]) {
      context.strokeStyle = context.fillStyle = style;
      context.lineWidth = outline;
      context.beginPath();
      for (const { row, at, other, done } of waits) {
        const [x0, y0, x1, y1] = [this.x(done), this.y(other) + middle, this.x(at), this.y(row) + middle];
        context.moveTo(x0, y0);
        context.lineTo(x1, y1);
        const way = Math.atan2(y1 - y0, x1 - x0);
        for (const turn of [0.45, -0.45]) {
          context.moveTo(x1, y1);
          context.lineTo(x1 - head * Math.cos(way + turn), y1 - head * Math.sin(way + turn));
        }
      }
      context.stroke();
    }
  }

  paintSelected({ row, place, tick }) {
    const { context, run, theme } = this;
    const [begin, end] = run.extent(row, place, tick);
    context.strokeStyle = theme.ink;
    context.lineWidth = 2;
    const left = this.x(begin);
    context.strokeRect(left - 1, this.y(row) - 1, Math.max(2, this.x(end) - left + 2), this.view.rowHeight);
  }

  paintDragged([from, to]) {
    const { context, size, theme } = this;
    context.fillStyle = context.strokeStyle = theme.link;
    context.globalAlpha = 0.2;
    context.fillRect(Math.min(from, to), TIMELINE.axis, Math.abs(to - from), size.height - TIMELINE.axis);
    context.globalAlpha = 1;
    this.line(from, TIMELINE.axis, from, size.height);
    this.line(to, TIMELINE.axis, to, size.height);
  }

  // Of low rows only those where a rank begins have names, as many as there is room for.
  paintNames() {
    const { context, run, view, size, theme } = this;
    context.fillStyle = theme.page;
    context.fillRect(0, 0, size.gutter, size.height);
    const named = view.rowHeight >= TIMELINE.namedFrom;
    let free = TIMELINE.axis;
    context.save();
    context.beginPath();
    context.rect(0, TIMELINE.axis, size.width, size.height - TIMELINE.axis);
    context.clip();
    for (let row = this.firstRow; row <= this.lastRow; row++) {
      const y = this.y(row);
      context.strokeStyle = theme.line;
      if (run.startsRank(row) && (named || y >= free)) this.line(0, y, size.width, y);
      if (!named && !(run.startsRank(row) && y >= free)) continue;
      free = y + TIMELINE.namedFrom;
      context.fillStyle = run.isEnv(row) ? theme.dim : theme.ink;
      context.fillText(run.name(row), 4, y + (named ? view.rowHeight / 2 : 7), size.gutter - 8);
    }
    context.restore();
    context.strokeStyle = theme.line;
    this.line(size.gutter, 0, size.gutter, size.height);
    this.line(0, TIMELINE.axis, size.width, TIMELINE.axis);
    context.fillStyle = theme.dim;
    context.fillText("since its begin", 4, 27, size.gutter - 6);
  }
}
