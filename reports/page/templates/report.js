// Draws the page's charts from the JSON that it holds, in its colours, and hands that JSON out as files.
// `window.__rlbenchCharts` says of each chart whether it has been drawn.
(() => {
  "use strict";

  const NARROW = 600; // pixels: below, the legend stands under the chart
  const TALLEST = 680;
  const PRINTED_WIDTH = 680;
  const TICKS_PER_MS = 10;

  const textOf = (id) => document.getElementById(id).textContent;
  const figures = JSON.parse(textOf("figures-data"));
  const timelines = JSON.parse(textOf("timelines-data"));
  const spanColours = JSON.parse(textOf("spans-data"));
  const plots = [...document.querySelectorAll(".plot")];
  const drawn = (window.__rlbenchCharts = Object.fromEntries(plots.map((plot) => [plot.id, false])));
  let printing = false;

  // ---- colours of the page

  const asked = /theme=(light|dark)/.exec(location.hash);
  if (asked) document.documentElement.dataset.theme = asked[1];
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : systemDark.matches;
  };

  const template = () => {
    const of = getComputedStyle(printing ? document.getElementById("light-probe") : document.documentElement);
    const colour = (name) => of.getPropertyValue(`--${name}`).trim();
    const axis = {
      gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"), tickcolor: colour("line"),
      automargin: true, title: { standoff: 8 },
    };
    return {
      layout: {
        font: { color: colour("ink"), size: 13, family: getComputedStyle(document.body).fontFamily },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        xaxis: axis, yaxis: axis,
        legend: { bgcolor: "rgba(0,0,0,0)", tracegroupgap: 0 },
        hoverlabel: { bgcolor: colour("shade"), bordercolor: colour("line"), font: { color: colour("ink") } },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("dim"), activecolor: colour("ink") },
      },
    };
  };

  // Traces that have the colour of the text: intervals upon bars.
  const coloured = (data) => {
    const ink = template().layout.font.color;
    const inInk = ({ line, marker, ...trace }) => ({
      ...trace, line: { ...line, color: ink }, marker: { ...marker, line: { ...marker.line, color: ink } },
    });
    return data.map((trace) => (trace.meta === "ink" ? inInk(trace) : trace));
  };

  // ---- layouts

  const inLegend = (figure) =>
    figure.layout.showlegend === false ? [] : figure.data.filter((trace) => trace.showlegend !== false && trace.name);

  const numLines = (name) => name.split("<br>").length;
  const heightOf = (names) => Math.max(0, ...names.map((name) => 4 + 17 * numLines(name)));

  // A legend in columns of equal width, and how high it is.
  const legendIn = (width, names) => {
    const widest = Math.max(...names.flatMap((name) => name.split("<br>")).map((line) => line.length));
    const columns = Math.max(1, Math.min(names.length, Math.floor(width / (56 + 6.6 * widest))));
    let height = 16;
    for (let k = 0; k < names.length; k += columns) height += heightOf(names.slice(k, k + columns));
    const legend = {
      orientation: "h", x: 0, xanchor: "left", xref: "container", font: { size: 11 },
      entrywidth: Math.floor(width / columns) - 48, entrywidthmode: "pixels", maxheight: 1,
    };
    return { legend, height };
  };

  const layoutOf = (plot, figure) => {
    const width = printing ? PRINTED_WIDTH : plot.clientWidth;
    const names = inLegend(figure).map((trace) => trace.name);
    const layout = {
      hovermode: "closest", uirevision: "as zoomed", height: 400, autosize: true, ...structuredClone(figure.layout),
      template: template(), margin: { l: 50, r: 16, t: 24, b: 44 },
    };
    if (printing) layout.width = PRINTED_WIDTH;
    if (plot.closest("[data-shared]")) {
      layout.showlegend = false; // all panels have one beside them
    } else if (names.length && figure.data.length > 1 && width < NARROW) {
      const { legend, height } = legendIn(width - 80, names); // less the margins
      layout.legend = { ...layout.legend, ...legend, y: 0, yref: "container", yanchor: "bottom" };
      layout.height += height;
      layout.margin.b += height;
    } else if (names.length) {
      const height = 90 + names.reduce((sum, name) => sum + heightOf([name]), 0);
      layout.height = Math.max(layout.height, Math.min(height, TALLEST)); // a longer legend scrolls
    }
    if (width < NARROW) {
      layout.font = { size: 11 };
      if (!plot.classList.contains("timeline")) layout.dragmode = false; // a finger scrolls the page
    }
    return layout;
  };

  const config = (plot) => ({
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    displayModeBar: plot.classList.contains("timeline") ? true : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { filename: plot.id },
  });

  // ---- worker timelines

  const isWait = (kind) => kind.startsWith("wait:");

  const timelineFigure = (run) => {
    const lines = {};
    const line = (kind) => (lines[kind] ||= { x: [], y: [] });
    run.rows.forEach((name, row) => {
      // An environment that does nothing waits for its next action.
      if (name.includes(", env ")) {
        line("wait:inference").x.push(0, run.ticks / TICKS_PER_MS, null);
        line("wait:inference").y.push(row, row, null);
      }
    });
    for (const [kind, lanes] of Object.entries(run.spans)) {
      const { x, y } = line(kind);
      for (const [row, ...steps] of lanes) {
        let at = 0;
        for (let k = 0; k < steps.length; k += 2) {
          const begin = at + steps[k];
          at = begin + steps[k + 1];
          x.push(begin / TICKS_PER_MS, at / TICKS_PER_MS, null);
          y.push(row, row, null);
        }
      }
    }
    const order = Object.keys(spanColours).filter((kind) => kind in lines);
    order.sort((a, b) => isWait(b) - isWait(a)); // work is drawn upon waiting
    const data = order.map((kind) => ({
      type: "scatter", mode: "lines", name: kind, x: lines[kind].x, y: lines[kind].y,
      line: { color: spanColours[kind], width: isWait(kind) || kind === "other" ? 3 : 9, simplify: false },
      hovertemplate: "%{x:,.1f} ms<extra>%{fullData.name}</extra>",
    }));
    const layout = {
      uirevision: run.label, height: 110 + 17 * run.rows.length,
      xaxis: { title: { text: "Time in the iteration (ms)" }, range: [0, run.ticks / TICKS_PER_MS] },
      yaxis: {
        tickmode: "array", tickvals: run.rows.map((_, row) => row), ticktext: run.rows,
        range: [run.rows.length - 0.3, -0.7], showgrid: false, zeroline: false,
      },
    };
    return { data, layout };
  };

  const chosen = (id) => timelines[id].runs[Number(document.getElementById(`${id}-run`).value)];

  const figureOf = (plot) => {
    if (!plot.classList.contains("timeline")) return figures[plot.id];
    const run = chosen(plot.id);
    document.getElementById(`${plot.id}-note`).textContent = run.note;
    return timelineFigure(run);
  };

  // ---- the legend that several panels share: a figure without points, whose entries show and hide

  const drawLegend = (box) => {
    const panels = [...box.parentElement.querySelectorAll(".plot")];
    const groupOf = (trace) => trace.legendgroup || trace.name;
    const traces = new Map();
    for (const panel of panels) {
      for (const trace of inLegend(figures[panel.id])) {
        if (!traces.has(groupOf(trace))) traces.set(groupOf(trace), { ...trace, x: [null], y: [null] });
      }
    }
    box.hidden = !traces.size;
    if (box.hidden) return;
    const data = [...traces.values()];
    const width = printing ? PRINTED_WIDTH : box.clientWidth;
    const { legend, height } = legendIn(width, data.map((trace) => trace.name));
    const hidden = { visible: false, fixedrange: true };
    const layout = {
      template: template(), uirevision: "as chosen", height, margin: { l: 0, r: 0, t: 0, b: 0 },
      xaxis: hidden, yaxis: hidden, showlegend: true,
      legend: { ...legend, y: 1, yref: "container", yanchor: "top", itemdoubleclick: false },
    };
    Plotly.react(box, data, layout, { responsive: true, displayModeBar: false });
    box.removeAllListeners("plotly_legendclick");
    box.on("plotly_legendclick", ({ data: entries, curveNumber }) => {
      const { visible, ...entry } = entries[curveNumber];
      for (const panel of panels) {
        const same = panel.data.flatMap((trace, k) => (groupOf(trace) === groupOf(entry) ? [k] : []));
        if (same.length) Plotly.restyle(panel, { visible: visible === "legendonly" ? true : "legendonly" }, same);
      }
      return true;
    });
  };

  // ---- drawing, from the top of the page down, so that the page can be read meanwhile

  const draw = async (plot) => {
    try {
      const figure = figureOf(plot);
      await Plotly.react(plot, coloured(figure.data), layoutOf(plot, figure), config(plot));
      drawn[plot.id] = true;
    } catch (problem) {
      plot.textContent = `could not be drawn: ${problem}`;
    }
  };
  const legends = [...document.querySelectorAll(".shared-legend")];
  const drawAll = () => {
    plots.forEach(draw);
    legends.forEach(drawLegend);
  };
  const drawNext = (waiting) => {
    if (!waiting.length) return;
    draw(waiting[0]);
    setTimeout(drawNext, 0, waiting.slice(1));
  };

  const recolour = () => {
    document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
    plots.filter((plot) => drawn[plot.id]).forEach(draw);
    legends.forEach(drawLegend);
  };

  document.getElementById("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    recolour();
  });
  systemDark.addEventListener("change", recolour);

  for (const choice of document.querySelectorAll("select[data-timeline]")) {
    choice.addEventListener("change", () => draw(document.getElementById(choice.dataset.timeline)));
  }

  let wasNarrow = innerWidth < NARROW;
  addEventListener("resize", () => {
    if (printing || innerWidth < NARROW === wasNarrow) return; // within a width plotly itself fits the chart
    wasNarrow = !wasNarrow;
    drawAll();
  });

  addEventListener("beforeprint", () => { printing = true; drawAll(); });
  addEventListener("afterprint", () => { printing = false; drawAll(); });

  // ---- downloads

  const files = {
    "summary.json": () => [textOf("summary-data"), "application/json"],
    "cells.csv": () => [JSON.parse(textOf("csv-data")).cells, "text/csv"],
    "runs.csv": () => [JSON.parse(textOf("csv-data")).runs, "text/csv"],
  };
  for (const button of document.querySelectorAll("[data-download]")) {
    button.addEventListener("click", () => {
      const [text, type] = files[button.dataset.download]();
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type }));
      link.download = button.dataset.download;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  recolour();
  drawNext(plots);
})();
