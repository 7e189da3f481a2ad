// The spans of one run, decoded, and what can be asked of them. Times are ticks since the first iteration began.

// Names of what a time is written in: the largest unit in which it is at least 1.
const TIME_UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]];

// A length of time in s, ms or µs.
const inWords = (seconds) => {
  const [unit, size] = TIME_UNITS.find(([, least]) => Math.abs(seconds) >= least) ?? TIME_UNITS.at(-1);
  const value = seconds / size;
  return `${value.toLocaleString("en", { maximumFractionDigits: unit === "s" ? 3 : 1 })} ${unit}`;
};

class TimelineRun {
  // `data` is what `reports/page/timeline_data.py` says of a run.
  constructor(data) {
    Object.assign(this, {
      label: data.label, note: data.note, kinds: data.kinds, colours: data.colours, tick: data.tick, end: data.end,
      lanes: data.lanes, shown: data.shown,
    });
    this.isThin = data.kinds.map((kind) => kind.startsWith("wait:") || kind === "other");
    this.iterations = data.iterations.map(([number, begin, end, counts, cut]) => ({ number, begin, end, counts, cut }));
    this.own = new Map(data.own.map(([rank, ...iterations]) => [rank, iterations]));
    this.first = new Int32Array(data.lanes.length + 1); // where the spans of each row begin in the arrays below
    data.spans.forEach(([letters], row) => { this.first[row + 1] = this.first[row] + letters.length; });
    this.begins = new Int32Array(this.first.at(-1));
    this.ends = new Int32Array(this.first.at(-1));
    this.kindOf = new Uint8Array(this.first.at(-1));
    data.spans.forEach(([letters, steps], row) => this.decode(row, letters, steps));
    this.waits = TimelineRun.waits(data.waits);
    this.path = TimelineRun.waits(data.path);
    this.idle = this.kinds.indexOf("wait:inference");
    this.collectsAhead = data.lanes.some(([, environment]) => environment === -2); // in a second thread
  }

  decode(row, letters, steps) {
    let at = 0;
    for (let k = 0; k < letters.length; k++) {
      const place = this.first[row] + k;
      this.begins[place] = at + steps[2 * k];
      this.ends[place] = at = this.begins[place] + steps[2 * k + 1];
      this.kindOf[place] = letters.charCodeAt(k) - 65;
    }
  }

  static waits(numbers) {
    const found = [];
    for (let k = 0; k < numbers.length; k += 4) {
      const [row, at, other, since] = numbers.slice(k, k + 4);
      found.push({ row, at, other, done: at - since });
    }
    return found;
  }

  get rows() { return this.lanes.length; }

  isEnv(row) { return this.lanes[row][1] >= 0; }

  isWait(kind) { return this.isThin[kind]; }

  startsRank(row) { return row === 0 || this.lanes[row][0] !== this.lanes[row - 1][0]; }

  name(row) {
    const [rank, environment] = this.lanes[row];
    return `rank ${rank}${environment >= 0 ? `, env ${environment}` : environment === -2 ? ", second thread" : ""}`;
  }

  // The first span of a row that ends after a moment, by its place in the arrays; where the next row begins if none does.
  endingAfter(row, tick) {
    let [low, high] = [this.first[row], this.first[row + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] > tick) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // The span of a row at a moment; -1 if there is none.
  at(row, tick) {
    const place = this.endingAfter(row, tick);
    return place < this.first[row + 1] && this.begins[place] <= tick ? place : -1;
  }

  // The span of a row at a moment, or else the next one, or the last one; -1 if it has none.
  from(row, tick) {
    const last = this.first[row + 1] - 1;
    return last < this.first[row] ? -1 : Math.min(this.endingAfter(row, tick), last);
  }

  // Begin and end of a span, or of the gap at a moment.
  extent(row, place, tick) {
    if (place >= 0) return [this.begins[place], this.ends[place]];
    const after = this.endingAfter(row, tick);
    const begin = after > this.first[row] ? this.ends[after - 1] : 0;
    return [begin, after < this.first[row + 1] ? this.begins[after] : this.end];
  }

  // The index of the iteration at a moment, the first or the last one outside of them.
  iterationAt(tick) {
    const found = this.iterations.findIndex(({ end }) => tick < end);
    return found < 0 ? this.iterations.length - 1 : found;
  }

  // The lines that tell about a span, or about the time in which an environment waits for an action.
  about(row, place, tick) {
    const [rank] = this.lanes[row];
    if (place < 0 && !this.isEnv(row)) return [];
    const [begin, end] = this.extent(row, place, tick);
    const own = this.own.get(rank)?.find(([, , last]) => begin < last) ?? this.own.get(rank)?.at(-1);
    const lines = [
      `${place < 0 ? "wait:inference" : this.kinds[this.kindOf[place]]}: ${inWords((end - begin) * this.tick)}`,
      this.name(row),
    ];
    if (!own) return lines;
    lines.push(`begins ${inWords(Math.max(0, begin - own[1]) * this.tick)} into iteration ${own[0]}`);
    if (place >= 0) lines.push(this.batch(row, place, own));
    return lines;
  }

  // Which one of its kind a span is in the row's iteration, whose samples are a batch: `simulate 12 of 128`. Where a
  // second thread collects, they are one that is learned later.
  batch(row, place, [number, begin, end]) {
    const kind = this.kindOf[place];
    let [nth, all] = [0, 0];
    for (let k = this.endingAfter(row, begin); k < this.first[row + 1] && this.begins[k] < end; k++) {
      if (this.kindOf[k] !== kind || this.begins[k] < begin) continue;
      all += 1;
      if (k <= place) nth += 1;
    }
    const which = `${this.kinds[kind]} ${Math.max(nth, 1)} of ${Math.max(all, 1)}`;
    if (!this.collectsAhead) return `${which} in the batch of iteration ${number}`;
    return `${which} in iteration ${number}${this.lanes[row][1] === -1 ? "" : ", for a later batch"}`;
  }
}
