// Plots of the Activity tab. They are drawn from the table of days, their
// accessible equivalent, and redrawn when the table, the width or the colors of
// the page change.
(() => {
  "use strict";

  const region = document.getElementById("live-activity-usage");
  const plots = document.querySelector("[data-plots]");
  if (!region || !plots || typeof uPlot !== "function") return;

  const height = 160;
  let drawn = [];

  // days reads the table into columns.
  const days = () => {
    const rows = [...region.querySelectorAll("tr[data-day]")];
    const column = (name) => rows.map((row) => Number(row.dataset[name]));
    return {
      day: rows.map((row) => Date.parse(row.dataset.day + "T00:00:00Z") / 1000),
      requests: column("requests"), errors: column("errors"), input: column("input"), output: column("output"),
    };
  };

  // color resolves a custom property of the style sheet, including light-dark():
  // canvas supports neither.
  const color = (name, fallback) => {
    const probe = document.createElement("span");
    probe.className = "plot-color plot-color-" + name;
    plots.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value || fallback;
  };

  const short = (n) => n >= 1e9 ? n / 1e9 + "G" : n >= 1e6 ? n / 1e6 + "M" : n >= 1e3 ? n / 1e3 + "k" : String(n);

  const options = (width, series) => {
    const line = color("line", "#888"), text = color("text", "#666");
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    return {
      width, height,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      cursor: { drag: { x: false, y: false } },
      scales: { x: { range: (_, min, max) => [min - 43200, max + 43200] }, y: { range: (_, min, max) => [0, Math.max(max, 1) * 1.1] } },
      axes: [
        { ...axis, values: (_, at) => at.map((s) => new Date(s * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" })), space: 70 },
        { ...axis, size: 52, values: (_, at) => at.map((n) => Number.isInteger(n) ? short(n) : "") },
      ],
      series: [
        { label: "Day", value: (u, s) => new Date((s ?? u.data[0].at(-1)) * 1000).toISOString().slice(0, 10) },
        ...series.map(({ label, tint, bars }) => ({
          label, stroke: color(tint, "#36c"), width: bars ? 0 : 2,
          fill: bars ? color(tint, "#36c") : undefined,
          paths: bars ? uPlot.paths.bars({ size: [0.7, 24], radius: 0.15 }) : undefined,
          points: { show: !bars, size: 4 },
          value: (u, n, i) => (n ?? u.data[i].at(-1) ?? 0).toLocaleString(),
        })),
      ],
    };
  };

  const draw = () => {
    drawn.forEach((plot) => plot.destroy());
    drawn = [];
    plots.hidden = false;
    const d = days();
    const at = (name) => plots.querySelector(`[data-plot="${name}"]`);
    const add = (name, series, data) => {
      const target = at(name);
      drawn.push(new uPlot(options(Math.max(target.clientWidth, 240), series), data, target));
    };
    add("requests", [
      { label: "Requests", tint: "first", bars: true }, { label: "Failed", tint: "bad", bars: true },
    ], [d.day, d.requests, d.errors]);
    add("tokens", [{ label: "In", tint: "first" }, { label: "Out", tint: "second" }], [d.day, d.input, d.output]);
  };

  let waiting = 0;
  const redraw = () => {
    clearTimeout(waiting);
    waiting = setTimeout(draw, 100);
  };
  draw();
  new MutationObserver(redraw).observe(region, { childList: true, subtree: true, attributes: true, characterData: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) { width = innerWidth; redraw(); }
  });
})();
