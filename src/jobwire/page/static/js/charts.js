// Small charts, and a chart as a table.
import { html, svg, nothing } from "./ui.js";

// Small bars, one for each number; the failed part at the foot in red.
export function bars(values, failed = [], { width = 120, height = 22, label = "" } = {}) {
  const most = Math.max(1, ...values);
  const step = width / values.length;
  const bar = (value, i, cls) => {
    const tall = value ? Math.max(2, (value / most) * height) : 1;
    return svg`<rect class=${cls} x=${(i * step).toFixed(1)} y=${(height - tall).toFixed(1)}
      width=${Math.max(1, step - 1).toFixed(1)} height=${tall.toFixed(1)}></rect>`;
  };
  return html`<svg class="bars" width=${width} height=${height} viewBox="0 0 ${width} ${height}"
    role="img" aria-label=${label}>
    ${values.map((value, i) => bar(value, i, value ? "" : "none"))}
    ${failed.map((value, i) => (value ? bar(value, i, "bad") : nothing))}
  </svg>`;
}

// The same as a table, for those who cannot see the plot.
export const dataTable = (label, heads, rows) =>
  html`<details class="data-table"><summary>${label}</summary><div class="scroll" tabindex="0"><table>
    <thead><tr>${heads.map((head) => html`<th>${head}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, i) => html`<td data-label=${heads[i]}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div></details>`;
