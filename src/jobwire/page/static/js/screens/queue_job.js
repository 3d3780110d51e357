// A job of a queue: its life, live events, data, result, log, flow, and its keys on the wire.
import { html, nothing, icon, command, empty, time, timeAgo } from "../ui.js";
import { announce, may } from "../store.js";
import { get } from "../api.js";
import { count, duration, age, now, plural, shortId, shortWorker, zone } from "../format.js";
import { part, styled } from "../parts.js";
import { pollNow } from "../poll.js";
import { JobScreen, eventData, sizeOf } from "../jobview.js";
import { QueueJobFollower, asJob, asLife } from "../queue_events.js";
import {
  ENDED,
  STATES,
  WIRE,
  childrenIn,
  getQueueJob,
  isFlow,
  jobPath,
  ofKey,
  percentIn,
  queueJobLink,
  queueLink,
  queuePath,
  shapeOf,
  stateView,
} from "../queues.js";

const EVENT_SHAPES = { added: "waiting", stalled: "failed", removed: "canceled" }; // besides the states
const POLL_MS = 50; // events that come together are one reason to read the job

const loadLogs = () => styled("log", import("../logs.js"));
const logsPart = part(loadLogs);
const resultPart = part(() => styled("text", import("../queue_result.js")));
const flowPart = part(() => styled("flow", import("../flow.js")));

function eventName({ type }) {
  const shape = STATES.includes(type) ? shapeOf(type) : EVENT_SHAPES[type];
  return html`<span class="st ${shape ?? (type === "progress" ? "running" : "muted")}">${shape ? icon(shape, "") : nothing}${type}</span>`;
}

// A percentage in words; of other events all fields but the time, which the row has.
function dataView(event) {
  const { data, message } = event.data;
  const percent = data === 0 ? 0 : percentIn(data);
  if (event.type === "progress" && percent !== null)
    return html`${percent} % <span class="soft">${typeof message === "string" ? message : ""}</span>`;
  if (typeof event.data !== "object") return eventData(event);
  const { timestamp, ...fields } = event.exact;
  return eventData({ data: fields });
}

class QueueJob extends JobScreen {
  tabNames = ["events", "data", "result", "logs", "flow", "wire"];
  get failed() {
    return this.job.state === "failed";
  }
  queueInfo = null;
  logs = null;
  lines = null; // of the log, before it is opened
  tree = null;

  constructor(route) {
    super();
    [, , this.queue, this.id] = route.parts;
    this.path = jobPath(this.queue, this.id);
    this.changed(route);
  }

  title = () =>
    html`<a href=${queueLink(this.queue)}>${this.queue}</a><span class="sep">/</span>${this.job ? this.job.name || "no name" : shortId(this.id)}`;
  get label() {
    return this.job && `${this.job.name} ${shortId(this.id)}`;
  }
  href = (query) => queueJobLink(this.queue, this.id, query);
  get ended() {
    return ENDED.includes(this.job?.state);
  }

  readJob = () => getQueueJob(this.queue, this.id);
  isGone = ({ status }) => status === 404;
  newFollower = () => new QueueJobFollower(`${this.path}/events`, this.heard, this.gap);

  readMore(rare, stale) {
    const first = !this.tree;
    return Promise.all([
      (first || rare) && this.readQueue(),
      first && this.countLines(),
      this.tab === "logs" && (!this.logs || rare || stale || !this.ended) && this.readLogs(),
      (first || ((rare || stale) && isFlow(this.tree))) && this.readTree(),
    ]);
  }

  async readQueue() {
    this.queueInfo = await get(queuePath(this.queue));
  }

  async countLines() {
    this.lines = (await get(`${this.path}/logs`, { limit: 1 })).total;
  }

  async readLogs(from) {
    this.logs = await (await loadLogs()).readLogs(this.path, this.logs, from);
  }

  async readTree() {
    this.tree = await get(`${this.path}/flow`);
  }

  // A job that has ended may run again: then its events are followed anew.
  follow() {
    if (this.follower && (this.follower.state !== "ended" || this.ended)) return;
    this.events = [];
    this.follower = this.newFollower();
  }

  took(event) {
    const { job } = this;
    if (["completed", "failed", "removed", "waiting", "active", "delayed"].includes(event.type)) {
      if (ENDED.includes(event.type)) announce(`The job has ${event.type}.`);
      // The state, the result and the keys have changed.
      this.stale = true;
      clearTimeout(this.timer);
      this.timer = setTimeout(pollNow, POLL_MS);
    } else if (event.type === "progress" && job?.state === "active")
      this.job = { ...job, progress: event.data.data };
  }

  close() {
    clearTimeout(this.timer);
    super.close();
  }

  // Acts are loaded with the first one.
  act = (name) => async () => (await import("../queue_acts.js")).ofJob[name](this);

  // While the job is being removed it is not read.
  leave(on) {
    this.leaving = on;
    if (on) this.follower?.close();
  }

  turn = (from) => this.attempt(() => this.readLogs(from))();

  acts() {
    const { state } = this.job;
    if (!may("submit")) return nothing;
    return html`<div class="row wrap acts"><button class="btn" @click=${this.act("copy")}>Run a copy…</button>
      ${state === "active" ? html`<button class="btn danger" @click=${this.act("cancel")}>Cancel job</button>` : html`<button class="btn danger" @click=${this.act("remove")}>Remove</button>`}
      ${state === "delayed" ? html`<button class="btn primary" @click=${this.act("promote")}>Promote</button>` : nothing}
      ${this.ended ? html`<button class="btn ${state === "failed" ? "primary" : ""}" @click=${this.act("retry")}>${icon("again")}Retry</button>` : nothing}</div>`;
  }

  head() {
    const { job } = this;
    const message =
      this.events.findLast((event) => event.type === "progress")?.data.message ??
      job.progress?.message;
    const most = job.opts.attempts;
    const parent = job.parent_key ? ofKey(job.parent_key) : null;
    return this.headOf({
      title: job.name || "no name",
      word: stateView(job.state),
      attempts:
        job.attempts_made > 1 || most > 1
          ? `attempt ${Math.max(1, job.attempts_made + (job.state === "active" ? 1 : 0))}${most > 1 ? ` of ${most}` : ""}`
          : "",
      percent: job.state === "active" ? percentIn(job.progress) : null,
      message: typeof message === "string" ? message : "",
      id: job.id,
      more: parent
        ? html`<span>child of <a class="link" href=${queueJobLink(parent.queue, parent.id)}>${shortId(parent.id)}</a>${parent.queue === this.queue ? "" : ` in ${parent.queue}`}</span>`
        : nothing,
    });
  }

  facts({ due_ts }) {
    const { job } = this;
    const backoff = job.opts.backoff;
    return [
      ["System", html`queues <span class="muted">${WIRE}</span>`],
      [
        "Queue",
        html`<a class="link" href=${queueLink(this.queue)}>${this.queue}</a>${this.queueInfo?.paused ? html` <span class="warn">paused</span>` : nothing}`,
      ],
      job.processed_by && [this.ended ? "Last worker" : "Worker", shortWorker(job.processed_by)],
      [
        "Added",
        html`${time(job.timestamp, { day: true })} ${zone.name}<br /><span class="muted">${timeAgo(job.timestamp)}</span>`,
      ],
      due_ts && [
        "Due",
        html`${time(due_ts, { day: true })} ${zone.name}<br /><span class="muted">${due_ts > now() ? `in ${age(due_ts - now())}` : "now"}</span>`,
      ],
      ["Attempts", `${job.attempts_made}${job.opts.attempts ? ` of ${job.opts.attempts}` : ""}`],
      backoff && [
        "Backoff",
        typeof backoff === "object"
          ? `${backoff.type ?? ""} ${duration(backoff.delay)}`
          : duration(backoff),
      ],
      job.priority && ["Priority", count(job.priority)],
      job.stalled && ["Stalled", plural(job.stalled, "time")],
      job.scheduler && [
        "Scheduler",
        html`<a class="link" href=${queueLink(this.queue)}>${job.scheduler}</a>`,
      ],
      job.deduplication_id && ["Deduplication", html`<code>${job.deduplication_id}</code>`],
    ];
  }

  tabs() {
    const { job, logs, tree, wire } = this;
    const n = tree ? childrenIn(tree.job.counts) : 0;
    return [
      ["events", "Events", count(this.events.length)],
      ["data", "Data", sizeOf(job.data)],
      ["result", job.failed_reason && job.state !== "completed" ? "Error" : "Result"],
      ["logs", "Logs", count(logs?.total ?? this.lines ?? "")],
      (isFlow(tree) || this.tab === "flow") && [
        "flow",
        "Flow",
        n ? plural(n, "child", "children") : "",
      ],
      ["wire", "Wire", wire ? plural(wire.keys.length, "key") : ""],
    ];
  }

  tabView() {
    if (this.tab === "data") return this.jsonView(this.job.data);
    if (this.tab === "result")
      return this.job.state !== "completed" && !this.job.failed_reason
        ? this.noResult(this.shape())
        : resultPart(({ resultView }) => resultView(this));
    if (this.tab === "logs") return logsPart(({ logsView }) => logsView(this.logs, this.turn));
    if (this.tab !== "flow") return this.eventsTab();
    if (!isFlow(this.tree))
      return empty("This job is in no flow.", "A flow is a job that waits for its children.");
    return html`<div class="gap">${flowPart(({ treeView }) => treeView(this.tree, this.queue, this.id))}</div>`;
  }

  eventsTab() {
    const rows = this.shown ?? this.events;
    if (!rows.length && this.ended)
      return empty(
        "No events any more.",
        "A queue keeps about its last 10 000 events; those of this job are trimmed.",
      );
    return this.eventsView(rows, {
      first: rows[0]?.ts ?? this.job.timestamp,
      name: eventName,
      data: dataView,
    });
  }

  goneView = () => resultPart(({ goneView }) => goneView(this));

  shape = () => asJob(this.job, this.events);
  life = () => asLife(this.job, this.events);

  get noWorker() {
    const waits = this.job.state === "waiting" || this.job.state === "prioritized";
    return waits && (this.queueInfo?.workers === 0 || this.queueInfo?.paused);
  }

  notices() {
    const { problem } = this.job;
    return html`${problem ? html`<div class="notice bad">${icon("warn")}<div><b class="bold">No worker can run this job.</b> ${problem}.</div></div>` : nothing}
      ${
        !this.noWorker
          ? nothing
          : this.queueInfo.paused
            ? html`<div class="notice">${icon("pause")}<div><b class="bold">The queue is paused.</b> No worker starts this job.</div></div>`
            : html`<div class="notice">${icon("warn")}<div><b class="bold">No worker takes jobs from ${this.queue}.</b> Start one:<div>${command("jobwire worker module:app")}</div></div></div>`
      }`;
  }
}

export const open = (route) => new QueueJob(route);
