// What the screens of queues share: paths, states in the page's shapes, acts on jobs.
import { html, icon, nothing } from "./ui.js";
import { serves } from "./store.js";
import { call, get, post } from "./api.js";
import { jobLink, link } from "./router.js";

export const WIRE = "bullmq";
export const ENDED = ["completed", "failed"];
// state → its shape and colour; the words are those of BullMQ
const SHAPES = {
  waiting: "waiting",
  prioritized: "waiting",
  delayed: "scheduled",
  active: "running",
  "waiting-children": "waiting",
  completed: "done",
  failed: "failed",
};
export const STATES = Object.keys(SHAPES);
const WORDS = { "waiting-children": "Waiting for children" };

export const shapeOf = (state) => SHAPES[state] ?? "canceled";
export const wordOf = (state) => WORDS[state] ?? state[0].toUpperCase() + state.slice(1);
export const stateView = (state, text = wordOf(state)) =>
  html`<span class="st ${shapeOf(state)}">${icon(shapeOf(state), "")}${text}</span>`;

const text = encodeURIComponent;
export const queuePath = (queue, rest = "") => `/v1/queues/${text(queue)}${rest}`;
export const jobPath = (queue, id, rest = "") => queuePath(queue, `/jobs/${text(id)}${rest}`);
export const queueLink = (queue = "", query = {}) => link(["jobs"], { wire: WIRE, queue, ...query });
export const queueJobLink = (queue, id, query) => jobLink(WIRE, id, query, queue);

// The queue and the id of a job's key: `bull:<queue>:<id>`; an id may have colons.
export function ofKey(key) {
  const [, queue, ...id] = key.split(":");
  return { queue, id: id.join(":") };
}

const EXACT = ["data", "returnvalue", "progress", "opts"];
export const getQueueJob = (queue, id) => call("GET", jobPath(queue, id), { exact: EXACT });
export const listJobs = (queue, query) => get(queuePath(queue, "/summaries"), query);

export const retryJob = (queue) => (id) => post(jobPath(queue, id, "/retry"));
export const promoteJob = (queue) => (id) => post(jobPath(queue, id, "/promote"));
export const cancelQueueJob = (queue) => (id) => post(jobPath(queue, id, "/cancel"));
export const removeJob = (queue) => (id) => call("DELETE", jobPath(queue, id));

// A progress is a number, or an object that may have a percentage; one is never guessed.
export const percentIn = (progress) => {
  const value = typeof progress === "object" ? progress?.percent : progress;
  return typeof value === "number" && value > 0 && value <= 100 ? value : null;
};

export const wireSwitch = (current) =>
  serves("jobs") && serves("queues")
    ? html`<nav class="seg" aria-label="Wire">
        <a href="#/jobs" aria-current=${current === "streams" ? "true" : nothing}>Jobs</a
        ><a href=${queueLink()} aria-current=${current === WIRE ? "true" : nothing}>Queues</a></nav>`
    : nothing;
