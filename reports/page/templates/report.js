// Draws the page's charts from the JSON that it holds, in its colours, and hands that JSON out as files.
// `window.__rlbenchCharts` says of each chart whether it has been drawn.
(() => {
  "use strict";

  const NARROW = 600; // pixels: below, the legend stands under the chart
  const TALLEST = 680;
  const PRINTED_WIDTH = 680;

  const textOf = (id) => document.getElementById(id).textContent;
  const figures = JSON.parse(textOf("figures-data"));
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
      layout.dragmode = false; // a finger scrolls the page
    }
    return layout;
  };

  const config = (plot) => ({
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { filename: plot.id },
  });

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
      const figure = figures[plot.id];
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
