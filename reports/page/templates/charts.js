// ---- charts

const NARROW = 600; // pixels
const PRINTED_WIDTH = 680;
const BAR = 56; // the most that a bar is thick
const END_LINE = 14; // height of a text at the end of a line

const plots = [...document.querySelectorAll(".plot:not(.timeline)")];
const drawn = (window.__rlbenchCharts = Object.fromEntries(plots.map((plot) => [plot.id, false])));
let figures = {};

const isShown = (plot) => plot.getClientRects().length > 0;
const widthOf = (plot) => (printing ? PRINTED_WIDTH : plot.clientWidth);

const template = () => {
  const axis = {
    gridcolor: colourOf("grid"), linecolor: colourOf("line"), zerolinecolor: colourOf("line"),
    tickcolor: colourOf("line"), automargin: true, title: { standoff: 8 },
  };
  return {
    layout: {
      font: { color: colourOf("ink"), size: 13, family: getComputedStyle(document.body).fontFamily },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: axis, yaxis: axis,
      legend: { bgcolor: "rgba(0,0,0,0)", tracegroupgap: 0 },
      hoverlabel: { bgcolor: colourOf("shade"), bordercolor: colourOf("line"), font: { color: colourOf("ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colourOf("dim"), activecolor: colourOf("ink") },
    },
  };
};

// A trace without what the filters hide, in the colours of the page; null, if nothing is left of it.
const filtered = (trace) => {
  const of = trace.meta?.facets ?? {};
  if (!letsAll(of)) return null;
  const lists = facets.filter((facet) => Array.isArray(of[facet]) && chosen[facet] !== null);
  let left = trace;
  if (lists.length) {
    const length = of[lists[0]].length;
    const kept = [...Array(length).keys()].filter((at) => lists.every((facet) => lets(facet, of[facet][at])));
    if (!kept.length) return null;
    left = { ...trace };
    for (const key of ["x", "y", "text", "hovertemplate"]) {
      if (Array.isArray(trace[key]) && trace[key].length === length) left[key] = kept.map((at) => trace[key][at]);
    }
  }
  if (!trace.meta?.ink) return left;
  const ink = colourOf("ink");
  return { ...left, line: { ...left.line, color: ink }, marker: { ...left.marker, line: { ...left.marker.line, color: ink } } };
};

// The least and the largest number of some traces along an axis, and of the intervals among them.
const extent = (data, axis) => {
  const all = data.flatMap((trace) => (trace.visible === "legendonly" ? [] : trace[axis] ?? []));
  const numbers = all.filter((value) => typeof value === "number");
  return numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : null;
};

// Texts at the ends of lines, moved apart where they would stand on each other; they take the legend's place.
const endTexts = (data, layout, width) => {
  const ends = data.filter((trace) => trace.meta?.end && trace.y.length);
  const range = extent(data, "y");
  if (!ends.length || !range) return null;
  const isLog = layout.yaxis?.type === "log";
  const at = (value) => (isLog ? Math.log10(value) : value);
  let [low, high] = [at(range[0]), at(range[1])];
  if (!isLog && layout.yaxis?.rangemode === "tozero") low = Math.min(low, 0);
  if (layout.yaxis?.range) [low, high] = layout.yaxis.range;
  else [low, high] = [low - 0.04 * (high - low || 1), high + 0.04 * (high - low || 1)];
  if (!isLog && layout.yaxis?.rangemode === "tozero" && range[0] >= 0) low = 0;
  const pixels = (layout.height - layout.margin.t - layout.margin.b) / (high - low || 1);
  const texts = ends.map((trace) => ({ trace, y: at(trace.y.at(-1)), place: (high - at(trace.y.at(-1))) * pixels }));
  texts.sort((a, b) => a.place - b.place);
  const heights = texts.map((text) => END_LINE * text.trace.meta.end.split("<br>").length);
  texts.forEach((text, k) => {
    if (k) text.place = Math.max(text.place, texts[k - 1].place + heights[k - 1]);
  });
  const over = texts.length ? texts.at(-1).place - (high - low) * pixels : 0;
  if (over > 0) {
    texts.at(-1).place -= over;
    for (let k = texts.length - 2; k >= 0; k--) texts[k].place = Math.min(texts[k].place, texts[k + 1].place - heights[k]);
  }
  const longest = Math.max(...texts.map(({ trace }) => trace.meta.end.length));
  const room = Math.min(22 + 7.2 * longest, 0.36 * width);
  const most = Math.max(6, Math.round((room - 22) / 7.2));
  const annotations = texts.map(({ trace, y, place }) => {
    const text = trace.meta.end.length > most ? `${trace.meta.end.slice(0, most - 1)}…` : trace.meta.end;
    return {
      text, x: 1, xref: "paper", xanchor: "left", y, yref: "y", yanchor: "middle", showarrow: false, xshift: 6,
      yshift: (high - y) * pixels - place, font: { size: 12, color: colourOf("ink") }, align: "left",
      hovertext: trace.meta.end,
    };
  });
  const marks = texts.map(({ trace, y, place }) => ({
    text: "■", x: 1, xref: "paper", xanchor: "left", y, yref: "y", yanchor: "middle", showarrow: false, xshift: -3,
    yshift: (high - y) * pixels - place, font: { size: 10, color: trace.line.color },
  }));
  annotations.forEach((each) => (each.xshift = 9));
  return { annotations: [...marks, ...annotations], room, range: [low, high] };
};

const inLegend = (data) => data.filter((trace) => trace.showlegend !== false && trace.name);

const layoutOf = (plot, figure, data) => {
  const width = widthOf(plot);
  const given = structuredClone(figure.layout);
  const layout = {
    hovermode: "closest", uirevision: "as zoomed", height: printing ? 290 : 400, autosize: true, ...given,
    template: template(), margin: { l: 50, r: 16, t: 10, b: 44 },
  };
  delete layout.meta;
  if (printing) layout.width = PRINTED_WIDTH;
  for (const axis of ["xaxis", "yaxis"]) {
    if (!layout[axis]?.categoryarray) continue;
    const along = axis[0];
    const left = new Set(data.flatMap((trace) => trace[along]));
    layout[axis].categoryarray = layout[axis].categoryarray.filter((name) => left.has(name));
    if (given.meta?.row && along === "y") {
      const rows = layout[axis].categoryarray.length;
      layout[axis].range = [rows - 0.5, -0.5];
      delete layout[axis].autorange;
      layout.height = Math.max(Math.min(given.height, 150), given.meta.room + given.meta.row * rows);
      if (plot.closest(".first") && width >= NARROW - 200) layout.height = Math.max(layout.height, given.height);
    }
  }
  const ends = endTexts(data, layout, width);
  if (ends) {
    layout.showlegend = false;
    layout.annotations = [...(layout.annotations ?? []), ...ends.annotations];
    layout.margin.r = ends.room;
    layout.yaxis = { ...layout.yaxis, range: ends.range, autorange: false };
  } else if (given.showlegend !== false && inLegend(data).length > 1) {
    // A legend below, in columns of equal width.
    const names = inLegend(data).map((trace) => trace.name);
    const widest = Math.max(...names.flatMap((name) => name.split("<br>")).map((line) => line.length));
    const columns = Math.max(1, Math.min(names.length, Math.floor((width - 80) / (56 + 6.6 * widest))));
    let height = 16;
    for (let k = 0; k < names.length; k += columns) {
      height += Math.max(...names.slice(k, k + columns).map((name) => 4 + 17 * name.split("<br>").length));
    }
    layout.legend = {
      ...layout.legend, orientation: "h", x: 0, xanchor: "left", xref: "container", font: { size: 11 }, y: 0,
      yref: "container", yanchor: "bottom", entrywidth: Math.floor((width - 80) / columns) - 48,
      entrywidthmode: "pixels", maxheight: 1,
    };
    layout.height += height;
    layout.margin.b += height;
  } else {
    layout.showlegend = false;
  }
  if (width < NARROW) {
    layout.font = { size: 11 };
    layout.dragmode = false; // a finger scrolls the page
  }
  return layout;
};

const SAVE_SVG = {
  name: "svg", title: "Save as SVG", icon: null,
  click: (plot) => Plotly.downloadImage(plot, { format: "svg", filename: plot.id, width: plot.clientWidth, height: plot.clientHeight }),
};

const config = (plot) => ({
  responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", displayModeBar: "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  modeBarButtonsToAdd: [{ ...SAVE_SVG, icon: Plotly.Icons.disk }],
  toImageButtonOptions: { filename: plot.id, scale: 2 },
});

// Bars no thicker than `BAR` pixels, where few are left of a chart that keeps its height.
const slim = (figure, data, layout) => {
  if (!figure.layout.meta?.row) return data;
  const width = BAR * layout.yaxis.categoryarray.length / (layout.height - figure.layout.meta.room);
  return width > 0.8 ? data : data.map((trace) => (trace.type === "bar" ? { ...trace, width } : trace));
};

// The places along x of what filters have left.
const placesOf = (data) =>
  new Set(data.flatMap((trace) => (trace.meta?.facets ? trace.x : [])).filter((place) => place !== null));

// The charts that are shown, with what is to be drawn of each. They have their heights from here on, so that nothing
// moves while they are drawn; reads come before writes, since each read after a write would lay out the page anew.
const prepared = () => {
  const known = plots.filter((plot) => figures[plot.id]);
  for (const plot of known) plot.closest("figure").classList.remove("empty", "single");
  const shown = known.filter(isShown).map((plot) => {
    const figure = figures[plot.id];
    const data = figure.data.map(filtered).filter(Boolean);
    const about = (traces) => traces.some((trace) => trace.meta?.facets);
    const single = figure.layout.meta?.over === "gpus" && facets.some((facet) => chosen[facet]) && placesOf(data).size === 1;
    const layout = layoutOf(plot, figure, data);
    return { plot, data: slim(figure, data, layout), layout, empty: about(figure.data) && !about(data), single };
  });
  for (const { plot, layout, empty, single } of shown) {
    plot.style.height = `${layout.height}px`;
    plot.closest("figure").classList.toggle("empty", empty);
    plot.closest("figure").classList.toggle("single", single && !empty);
  }
  return shown;
};

const draw = async ({ plot, data, layout }) => {
  try {
    await Plotly.react(plot, data, layout, config(plot));
    drawn[plot.id] = true;
  } catch (problem) {
    plot.textContent = `could not be drawn: ${problem}`;
  }
};

// Draws from the top of the page down, so that the page can be read meanwhile; charts that are not shown count as drawn
// and are drawn when they are.
let drawing = 0;
const drawAll = (then) => {
  const mine = ++drawing;
  const waiting = prepared();
  const shown = new Set(waiting.map(({ plot }) => plot));
  for (const plot of plots) if (figures[plot.id] && !shown.has(plot)) drawn[plot.id] = true;
  const next = () => {
    if (mine !== drawing) return;
    if (!waiting.length) {
      then?.();
      return;
    }
    draw(waiting.shift());
    setTimeout(next, 0);
  };
  next();
};
const drawAllNow = () => prepared().forEach(draw);

const recolour = () => {
  document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
  if (window.Plotly) drawAll();
};
