// What the screens of queues share: paths, and states in the page's shapes.
import { html, icon } from "./ui.js";
import { call, get } from "./api.js";
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
export const queueLink = (queue = "", query = {}) =>
  link(["jobs"], { wire: WIRE, queue, ...query });
export const queueJobLink = (queue, id, query) => jobLink(WIRE, id, query, queue);

// The queue and the id of a job's key: `bull:<queue>:<id>`; an id may have colons.
export function ofKey(key) {
  const [, queue, ...id] = key.split(":");
  return { queue, id: id.join(":") };
}

const EXACT = ["data", "returnvalue", "progress", "opts"];
export const getQueueJob = (queue, id) => call("GET", jobPath(queue, id), { exact: EXACT });
export const listJobs = (queue, query) => get(queuePath(queue, "/summaries"), query);

export const waitingIn = ({ counts }) => counts.waiting + counts.prioritized;

// A flow is a job with children, or a child.
export const childrenIn = (counts) =>
  counts.completed + counts.failed + counts.ignored + counts.pending;
export const isFlow = (tree) => !!tree && (!!tree.parent || childrenIn(tree.job.counts) > 0);

// A progress is a number, or an object that may have a percentage; one is never guessed.
export const percentIn = (progress) => {
  const value = typeof progress === "object" ? progress?.percent : progress;
  return typeof value === "number" && value > 0 && value <= 100 ? value : null;
};
