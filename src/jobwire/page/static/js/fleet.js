// How a system is doing, in words, and where its screen is.
import { html, icon, nothing } from "./ui.js";
import { age, count } from "./format.js";
import { link } from "./router.js";

const BEHIND_MS = 2000;

// Overloaded, dead and paused look different.
export function takenBy(row) {
  if (row.paused) return ["pause", "Paused"];
  if (row.workers === 0 && (row.waiting || row.running)) return ["warn", "No worker"];
  if (row.waiting && row.oldest_waiting_ms > BEHIND_MS && row.slots && row.running >= row.slots)
    return ["behind", "Behind"];
  if (row.waiting || row.running) return ["ok", "Keeping up"];
  return ["waiting", row.workers === 0 ? "Quiet, no worker" : "Quiet"];
}

// A row of each queue, of both wires; of other systems their row.
export const queueRows = (rows) =>
  rows.flatMap((row) =>
    row.queues?.length
      ? row.queues.map((queue) => ({
          ...queue,
          system: row.system,
          wire: row.wire,
          delayed: 0,
          slots: null,
        }))
      : [row],
  );
// "queue reports: no worker, 1 waiting, since 9 min"
export const unread = ({ name, waiting, oldest_waiting_ms: oldest }) =>
  `queue ${name}: no worker, ${count(waiting)} waiting${oldest == null ? "" : `, since ${age(oldest)}`}`;
export const isUnread = (row) => !row.paused && row.workers === 0 && row.waiting > 0;

// The screen of a row, or of a kind of failure: a system, or one of its queues.
export const placeOf = ({ system, name }, query = {}) =>
  system === "queues"
    ? link(["jobs"], { wire: "bullmq", queue: name, ...query })
    : link([system], system === "jobs" ? query : {});

// Systems that could not be read; the others are shown.
export const unavailableView = (unavailable = []) =>
  unavailable.length
    ? html`${unavailable.map((each) => html`<div class="notice">${icon("warn")}<div><b class="bold">${each.system}</b>: ${each.detail}. <span class="soft">Its rows are missing here.</span></div></div>`)}`
    : nothing;
