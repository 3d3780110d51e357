// A plot of the last hour or day. uPlot is loaded with the first plot that is shown.
import { zone } from "./format.js";

let loading = null;
const plots = new WeakMap();

function load() {
  loading ??= new Promise((resolve, reject) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = "vendor/uplot/uPlot.min.css";
    const script = document.createElement("script");
    script.src = "vendor/uplot/uPlot.iife.min.js";
    script.onload = () => resolve(window.uPlot);
    script.onerror = reject;
    document.head.append(style, script);
  });
  return loading;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(uPlot, width, names) {
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const font = `11px ${colour("--font")}`;
  return {
    width,
    height: 150,
    cursor: { y: false, points: { show: false } },
    legend: { show: false },
    tzDate: (ts) => (zone.utc ? uPlot.tzDate(new Date(ts * 1e3), "Etc/UTC") : new Date(ts * 1e3)),
    scales: { y: { range: (_, low, high) => [0, Math.max(4, Math.ceil(high * 1.1))] } },
    axes: [
      { ...axis, font, size: 26, grid: { show: false }, space: 80, values: "{HH}:{mm}" },
      { ...axis, font, size: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5] },
    ],
    series: [
      {},
      ...names.map(([label, token], at) => ({
        label,
        stroke: colour(token),
        fill: at ? undefined : colour("--running-t"),
        width: 1.5,
        points: { show: false },
      })),
    ],
  };
}

// Draw into an element; called after each rendering. A change of theme or width draws anew.
export async function draw(element, data, names) {
  const theme = document.documentElement.dataset.theme + zone.name;
  const width = element.clientWidth;
  const known = plots.get(element);
  if (known?.theme === theme && known.width === width) return known.plot.setData(data);
  const uPlot = await load();
  plots.get(element)?.plot.destroy();
  if (element.isConnected) {
    plots.set(element, {
      theme,
      width,
      plot: new uPlot(options(uPlot, width, names), data, element),
    });
  }
}
