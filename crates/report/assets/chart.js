// SPDX-License-Identifier: Apache-2.0 OR MIT
// Draws a chart into each element that has one as JSON in its attribute data-chart:
// {x, y: labels, lines: [{name, color, dash, x: [...], y: [...]}]}. Each sample holds from its
// own x to the next one's, the last one for as long as the one before it.
"use strict";
(() => {
  const HEIGHT = 320; // pixels, without the legend
  const INK = "#1b2430";
  const FONT = "12px system-ui, sans-serif";
  const GRID = { stroke: "#e3e8ee", width: 1 };

  const end = ({ x }) => (x.length > 1 ? 2 * x.at(-1) - x.at(-2) : x.at(-1));

  // All x of all lines, ascending, and of each line what holds there: null where it has nothing.
  const align = (lines) => {
    const all = new Set(lines.flatMap((line) => [...line.x, end(line)]));
    const xs = [...all].sort((a, b) => a - b);
    const held = (line) => {
      const last = end(line);
      let at = -1;
      return xs.map((x) => {
        while (line.x[at + 1] <= x) at += 1;
        return at < 0 || x > last ? null : line.y[at];
      });
    };
    return [xs, ...lines.map(held)];
  };

  const shown = (plot, value) => (value == null ? "\u2013" : String(Number(value.toPrecision(6))));

  // The sample that holds under the cursor, not the nearest one.
  const dataIdx = (plot, series, nearest, x) =>
    nearest > 0 && plot.data[0][nearest] > x ? nearest - 1 : nearest;

  // From zero, so that heights can be compared, to what is visible.
  const range = (plot, least, greatest) => [
    Math.min(0, least ?? 0),
    greatest > 0 ? greatest * 1.05 : 1,
  ];

  const axis = (label) => ({
    label,
    stroke: INK,
    font: FONT,
    labelFont: FONT,
    labelSize: 24,
    grid: GRID,
    ticks: GRID,
  });

  const line = ({ name, color, dash }) => ({
    label: name,
    stroke: color,
    width: 1.5,
    dash: dash?.split(" ").map(Number),
    paths: uPlot.paths.stepped({ align: 1 }),
    points: { show: false },
    value: shown,
  });

  for (const element of document.querySelectorAll("[data-chart]")) {
    const chart = JSON.parse(element.dataset.chart);
    element.hidden = false;
    const size = () => ({ width: element.clientWidth, height: HEIGHT });
    const options = {
      ...size(),
      scales: { x: { time: false }, y: { range } },
      axes: [axis(chart.x), axis(chart.y)],
      series: [{ label: chart.x, value: shown }, ...chart.lines.map(line)],
      cursor: { y: false, dataIdx },
    };
    const plot = new uPlot(options, align(chart.lines), element);
    new ResizeObserver(() => plot.setSize(size())).observe(element);
  }
})();
