// The log of a queue's job: the last lines, or those that the reader has gone back to.
import { html, nothing, empty } from "./ui.js";
import { get } from "./api.js";
import { count } from "./format.js";

const LINES = 200;

// The page that begins at `from`; without it, the end of the log.
export async function readLogs(path, before, from = before?.held ? before.first : null) {
  const page = (first) => get(`${path}/logs`, { first, limit: LINES });
  let first = from ?? Math.max(0, (before?.total ?? 0) - LINES);
  let found = await page(first);
  if (from === null && found.total > first + LINES)
    found = await page((first = found.total - LINES));
  return { ...found, first, held: from !== null && first + LINES < found.total };
}

// `turn(from)` reads another page; null is the end.
export function logsView(logs, turn) {
  if (!logs) return html`<p class="muted small gap">Reading the log…</p>`;
  if (!logs.total)
    return empty(
      "No log lines.",
      "A handler writes them: ctx.log(text) in Python, job.log(text) in Node.",
    );
  const last = logs.first + logs.lines.length;
  return html`<div class="tabhead"><span class="muted small grow">Lines ${count(logs.first + 1)} to ${count(last)} of ${count(logs.total)}, oldest first.</span>
      ${logs.first ? html`<button class="btn slim" @click=${() => turn(Math.max(0, logs.first - LINES))}>Earlier lines</button>` : nothing}
      ${last < logs.total ? html`<button class="btn slim" @click=${() => turn(null)}>Last lines</button>` : nothing}</div>
    <ol class="log mono" start=${logs.first + 1}>${logs.lines.map((line, i) => html`<li><span class="muted">${count(logs.first + i + 1)}</span><span>${line}</span></li>`)}</ol>`;
}
