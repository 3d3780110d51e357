// A table of a queue's jobs.
import { html, nothing, id, meter, openRow, time } from "./ui.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { age, duration, now, shortId, shortWorker, zone } from "./format.js";
import { ENDED, ofKey, percentIn, queueJobLink, stateView } from "./queues.js";

const isEnded = (state) => ENDED.includes(state);

function note(job) {
  const percent = percentIn(job.progress);
  if (job.state === "failed")
    return html`<span class="failed" title=${job.failed_reason ?? ""}>${(job.failed_reason ?? "failed").split("\n")[0]}</span>`;
  if (job.state === "active") return percent === null ? "" : meter(percent);
  if (job.state === "delayed")
    return job.attempts_made ? `retry ${job.attempts_made + 1}` : job.scheduler ? "scheduler" : "";
  if (job.parent_key) return html`child of ${shortId(ofKey(job.parent_key).id)}`;
  if (job.priority) return `priority ${job.priority}`;
  return job.scheduler ? "scheduler" : "";
}

// How long it ran or has waited; when a delayed one is due.
function span(job) {
  if (job.state === "delayed") return job.due_ts > now() ? `in ${age(job.due_ts - now())}` : "now";
  const end = job.finished_on ?? (job.state === "active" ? now() : null);
  const ran = job.processed_on && end && job.state !== "waiting" && job.state !== "prioritized";
  return duration(ran ? end - job.processed_on : now() - job.timestamp);
}

const row = (queue, job, box, more) =>
  html`${box}<td>${stateView(job.state, job.state)}</td>
  <td class="bold task cut"><a href=${queueJobLink(queue, job.id)}>${job.name || "no name"}</a></td>
  <td class="id">${id(job.id)}</td>
  <td class="right at">${time(job.finished_on && isEnded(job.state) ? job.finished_on : job.timestamp, { day: true })}</td>
  <td class="right span ${job.state === "delayed" ? "scheduled" : ""}">${span(job)}</td>${more}
  <td class="muted hide cut note">${note(job)}</td>`;

// With `list` the rows can be selected, and have more columns.
export function queueTable(queue, rows, list = null) {
  const workers = !!list && rows.some((job) => job.processed_by);
  const states = [...new Set(rows.map((job) => job.state))];
  const only = states.length === 1 ? states[0] : "";
  const ended = states.every(isEnded);
  const heads = html`<th>State</th><th>Name</th><th>Id</th><th class="right">${ended ? "Ended" : "Added"}, ${zone.name}</th><th class="right">${only === "delayed" ? "Due" : ended || only === "active" ? "Ran" : "Age"}</th>
    ${list ? html`<th class="right">Attempts</th>` : nothing}${workers ? html`<th class="low">Worker</th>` : nothing}<th>Note</th>`;
  const attempts = (job) =>
    html`<td class="right hide">${job.attempts_made || job.attempts_started || ""}${job.attempts > 1 ? html`<span class="muted"> / ${job.attempts}</span>` : nothing}</td>
    ${workers ? html`<td class="muted hide low cut note">${shortWorker(job.processed_by) ?? ""}</td>` : nothing}`;
  const body = repeat(
    rows,
    (job) => job.id,
    (job, at) =>
      html`<tr class=${list?.picked.has(job.id) ? "picked" : ""} @click=${openRow}>${row(queue, job, list?.box(job, at) ?? nothing, list ? attempts(job) : nothing)}</tr>`,
  );
  return list
    ? list.tableView(heads, body)
    : html`<table class="hit jobs"><thead><tr>${heads}</tr></thead><tbody>${body}</tbody></table>`;
}
