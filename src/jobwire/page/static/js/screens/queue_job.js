// A job of a queue: its life, live events, data, result, log, flow, and its keys on the wire.
import { html, nothing, icon, meter, copy, command, empty, state as stateWord, time, timeAgo } from "../ui.js";
import { announce, may, update } from "../store.js";
import { get } from "../api.js";
import { ask } from "../dialog.js";
import { count, duration, age, now, plural, shortId, shortWorker, zone } from "../format.js";
import { go } from "../router.js";
import { pollNow } from "../poll.js";
import { attemptsView, lifeline, lifeOf } from "../lifeline.js";
import { wireView } from "../wire.js";
import { eventData, eventsView, facts, jsonTab, refusalView, sizeOf, stackView, tabs } from "../jobview.js";
import { childrenOf, isFlow, treeView } from "../flow.js";
import { QueueJobFollower, asJob, asLife } from "../queue_events.js";
import { ENDED, WIRE, cancelQueueJob, getQueueJob, jobPath, ofKey, percentIn, promoteJob, queueJobLink, queueLink, queuePath, removeJob, retryJob, shapeOf, stateView } from "../queues.js";

const LINES = 200;
const TABS = ["events", "data", "result", "logs", "flow", "wire"];
const EVENT_SHAPES = { added: "waiting", waiting: "waiting", prioritized: "waiting", active: "running", delayed: "scheduled", "waiting-children": "waiting", stalled: "failed", completed: "done", failed: "failed", removed: "canceled" };

class QueueJobScreen {
  job = null;
  gone = null;
  queueInfo = null;
  events = [];
  shown = null; // the events of a paused list
  logs = null;
  tree = null;
  wire = null;
  showSecrets = false;
  all = false;

  constructor(route) {
    [, , this.queue, this.id] = route.parts;
    this.path = jobPath(this.queue, this.id);
    this.changed(route);
  }

  title = () => html`<a href=${queueLink(this.queue)}>${this.queue}</a><span class="sep">/</span>${this.job ? this.job.name || "no name" : shortId(this.id)}`;
  href = (tab) => queueJobLink(this.queue, this.id, { tab: tab === "events" ? "" : tab });
  get ended() {
    return ENDED.includes(this.job?.state);
  }

  changed(route) {
    const tab = route.query.get("tab");
    this.tab = TABS.includes(tab) ? tab : "events";
    this.stale = true;
  }

  async poll(rare) {
    if (this.leaving || (this.gone && !rare)) return;
    const { stale } = this;
    this.stale = false;
    try {
      if (!this.job || !this.ended || rare || stale) this.job = await getQueueJob(this.queue, this.id);
      const first = !this.tree && !this.logs;
      await Promise.all([
        (first || rare) && this.readQueue(),
        (first || ((rare || stale || !this.ended) && this.tab === "logs")) && this.readLogs(),
        (first || ((rare || stale) && isFlow(this.tree))) && this.readTree(),
        this.tab === "wire" && (stale || Date.now() - this.wireAt > 3500) && this.readWire(),
      ]);
      this.gone = null;
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      this.gone = problem;
      this.follower?.close();
      return;
    }
    this.follow();
  }

  async readQueue() {
    this.queueInfo = await get(queuePath(this.queue));
  }

  // The last lines, or those that the reader has gone back to.
  async readLogs(from = this.logs?.held ? this.logs.first : null) {
    const ask = (first) => get(`${this.path}/logs`, { first, limit: LINES });
    let first = from ?? Math.max(0, (this.logs?.total ?? 0) - LINES);
    let page = await ask(first);
    if (from === null && page.total > first + LINES) page = await ask((first = page.total - LINES));
    this.logs = { ...page, first, held: from !== null && first + LINES < page.total };
  }

  async readTree() {
    this.tree = await get(`${this.path}/flow`);
  }

  async readWire() {
    this.wire = await get(`${this.path}/wire`);
    this.wireAt = Date.now();
  }

  // A job that has ended may run again: then its events are followed anew.
  follow() {
    if (this.follower && (this.follower.state !== "ended" || this.ended)) return;
    this.events = [];
    this.follower = new QueueJobFollower(`${this.path}/events`, this.heard, () => this.heard({ type: "gap", ts: now(), data: "some events are missing here" }));
  }

  heard = (event) => {
    this.events.push(event);
    const { job } = this;
    if (["completed", "failed", "removed", "waiting", "active", "delayed"].includes(event.type)) {
      if (ENDED.includes(event.type)) announce(`The job has ${event.type}.`);
      // The state, the result and the keys have changed.
      this.stale = true;
      clearTimeout(this.timer);
      this.timer = setTimeout(pollNow, 50);
    } else if (event.type === "progress" && job?.state === "active") this.job = { ...job, progress: event.data.data };
    update();
  };

  paused(on) {
    this.shown = on ? [...this.events] : null;
  }

  close() {
    clearTimeout(this.timer);
    this.follower?.close();
  }

  attempt = (act) => async () => {
    this.refusal = "";
    try {
      await act();
    } catch (problem) {
      this.refusal = problem.message;
    }
    this.stale = true;
    pollNow();
  };

  ask = (title, text, yes, act) => ask(title, text, this.attempt(act), { yes, no: "Leave it", danger: true });
  retry = this.attempt(() => retryJob(this.queue)(this.id));
  promote = this.attempt(() => promoteJob(this.queue)(this.id));
  cancel = () => this.ask("Cancel this job?", "Its worker is asked to stop it; it fails as canceled and does not run again.", "Cancel job", () => cancelQueueJob(this.queue)(this.id));
  remove = () => {
    const children = this.tree ? childrenOf(this.tree) : 0;
    this.ask("Remove this job?", `It is deleted with its data and log${children ? `, and with ${plural(children, "child", "children")}` : ""}.`, children ? `Remove job and ${plural(children, "child", "children")}` : "Remove job", async () => {
      this.leaving = true;
      this.follower?.close();
      try {
        await removeJob(this.queue)(this.id);
        go(queueLink(this.queue));
      } catch (problem) {
        this.leaving = false;
        throw problem;
      }
    });
  };
  copyJob = async () => {
    const { name, data, opts } = this.job;
    (await import("../addjob.js")).openAdd({ queue: this.queue, name, data, opts });
  };

  acts() {
    const { state } = this.job;
    if (!may("submit")) return nothing;
    return html`<div class="row wrap acts"><button class="btn" @click=${this.copyJob}>Run a copy…</button>
      ${state === "active" ? html`<button class="btn danger" @click=${this.cancel}>Cancel job</button>` : html`<button class="btn danger" @click=${this.remove}>Remove</button>`}
      ${state === "delayed" ? html`<button class="btn primary" @click=${this.promote}>Promote</button>` : nothing}
      ${this.ended ? html`<button class="btn ${state === "failed" ? "primary" : ""}" @click=${this.retry}>${icon("again")}Retry</button>` : nothing}</div>`;
  }

  head() {
    const { job } = this;
    const percent = percentIn(job.progress);
    const message = this.events.findLast((event) => event.type === "progress")?.data.message ?? job.progress?.message;
    const most = job.opts.attempts;
    const attempts = job.attempts_made > 1 || most > 1 ? `attempt ${Math.max(1, job.attempts_made + (job.state === "active" ? 1 : 0))}${most > 1 ? ` of ${most}` : ""}` : "";
    const parent = job.parent_key ? ofKey(job.parent_key) : null;
    return html`<div class="jobhead"><div class="grow">
      <div class="row wrap"><h2>${job.name || "no name"}</h2>${stateView(job.state)}<span class="muted small">${attempts}</span>
        ${job.state === "active" && percent !== null ? meter(percent, typeof message === "string" ? message : "") : nothing}</div>
      <div class="row wrap muted small"><span class="row"><code class="cut">${job.id}</code>${copy(job.id, "id")}</span>${parent ? html`<span>child of <a class="link" href=${queueJobLink(parent.queue, parent.id)}>${shortId(parent.id)}</a>${parent.queue === this.queue ? "" : ` in ${parent.queue}`}</span>` : nothing}</div></div>${this.acts()}</div>`;
  }

  rail(shape) {
    const { job } = this;
    const { due_ts } = shape;
    const backoff = job.opts.backoff;
    return facts([
      ["System", html`queues <span class="muted">${WIRE}</span>`],
      ["Queue", html`<a class="link" href=${queueLink(this.queue)}>${this.queue}</a>${this.queueInfo?.paused ? html` <span class="warn">paused</span>` : nothing}`],
      job.processed_by && [this.ended ? "Last worker" : "Worker", shortWorker(job.processed_by)],
      ["Added", html`${time(job.timestamp, { day: true })} ${zone.name}<br /><span class="muted">${timeAgo(job.timestamp)}</span>`],
      due_ts && ["Due", html`${time(due_ts, { day: true })} ${zone.name}<br /><span class="muted">${due_ts > now() ? `in ${age(due_ts - now())}` : "now"}</span>`],
      ["Attempts", `${job.attempts_made}${job.opts.attempts ? ` of ${job.opts.attempts}` : ""}`],
      backoff && ["Backoff", typeof backoff === "object" ? `${backoff.type ?? ""} ${duration(backoff.delay)}` : duration(backoff)],
      job.priority && ["Priority", count(job.priority)],
      job.stalled && ["Stalled", plural(job.stalled, "time")],
      job.scheduler && ["Scheduler", html`<a class="link" href=${queueLink(this.queue)}>${job.scheduler}</a>`],
      job.deduplication_id && ["Deduplication", html`<code>${job.deduplication_id}</code>`],
    ]);
  }

  tabs() {
    const { job, logs, tree, wire } = this;
    return tabs([
      ["events", "Events", count(this.events.length)],
      ["data", "Data", sizeOf(job.data)],
      ["result", job.failed_reason && job.state !== "completed" ? "Error" : "Result"],
      ["logs", "Logs", logs ? count(logs.total) : ""],
      (isFlow(tree) || this.tab === "flow") && ["flow", "Flow", tree && childrenOf(tree) ? plural(childrenOf(tree), "child", "children") : ""],
      ["wire", "Wire", wire ? plural(wire.keys.length, "key") : ""],
    ].filter(Boolean), this.tab, this.href);
  }

  eventsTab() {
    const follows = this.follower && !this.ended;
    const rows = this.shown ?? this.events;
    const head = this.shown ? html`<span class="muted small">Paused; ${count(this.events.length - this.shown.length)} newer.</span>` : follows ? (this.follower.state === "broken" ? stateWord("scheduled", "Reconnecting") : stateWord("running", "Live")) : nothing;
    if (!rows.length && this.ended) return empty("No events any more.", "A queue keeps about its last 10 000 events; those of this job are trimmed.");
    return eventsView(this, {
      rows,
      head,
      first: rows[0]?.ts ?? this.job.timestamp,
      name: ({ type }) => html`<span class="st ${EVENT_SHAPES[type] ?? (type === "progress" ? "running" : "muted")}">${EVENT_SHAPES[type] ? icon(EVENT_SHAPES[type], "") : nothing}${type}</span>`,
      data: (event) => (typeof event.data === "object" && !Object.keys(event.data).length ? nothing : eventData(event)),
    });
  }

  resultTab() {
    const { job } = this;
    if (job.state === "completed") return jsonTab(this, job.returnvalue);
    if (!job.failed_reason) return empty("No result yet.", job.state === "active" ? "The job is running." : job.state === "delayed" ? "The job waits for its time." : "The job waits for a worker.");
    const stacks = job.stacktrace.filter((text) => text.trim() !== job.failed_reason);
    const traces = stacks.length;
    return html`<div class="gap"><p><b class="bold ${job.state === "failed" ? "failed" : "warn"}">${job.state === "failed" ? "Failed" : "The last attempt failed"}</b></p><pre class="json gap" tabindex="0">${job.failed_reason}</pre>
      ${job.state === "failed" ? html`<p class="muted small gap"><a class="link" href=${queueLink(this.queue, { state: "failed" })}>Other failed jobs of ${this.queue}</a></p>` : nothing}</div>
      ${stacks.slice(-10).reverse().map((text, i) => stackView(traces > 1 ? `Stack trace ${traces - i} of ${traces}` : "Stack trace", text))}`;
  }

  back = this.attempt(() => this.readLogs(Math.max(0, this.logs.first - LINES)));
  toEnd = this.attempt(() => this.readLogs(null));

  logsTab() {
    const { logs } = this;
    if (!logs) return html`<p class="muted small gap">Reading the log…</p>`;
    if (!logs.total) return empty("No log lines.", "A handler writes them: ctx.log(text) in Python, job.log(text) in Node.");
    const last = logs.first + logs.lines.length;
    return html`<div class="tabhead"><span class="muted small grow">Lines ${count(logs.first + 1)} to ${count(last)} of ${count(logs.total)}, oldest first.</span>
        ${logs.first ? html`<button class="btn slim" @click=${this.back}>Earlier lines</button>` : nothing}
        ${last < logs.total ? html`<button class="btn slim" @click=${this.toEnd}>Last lines</button>` : nothing}</div>
      <ol class="log mono" start=${logs.first + 1}>${logs.lines.map((line, i) => html`<li><span class="muted">${count(logs.first + i + 1)}</span><span>${line}</span></li>`)}</ol>`;
  }

  tabView() {
    if (this.tab === "data") return jsonTab(this, this.job.data);
    if (this.tab === "result") return this.resultTab();
    if (this.tab === "logs") return this.logsTab();
    if (this.tab === "wire") return wireView(this.wire, this.wireAt);
    if (this.tab !== "flow") return this.eventsTab();
    return isFlow(this.tree) ? html`<div class="gap">${treeView(this.tree, this.queue, this.id)}</div>` : empty("This job is in no flow.", "A flow is a job that waits for its children.");
  }

  goneView() {
    const rule = "BullMQ deletes ended jobs by removeOnComplete and removeOnFail, and others when they are removed.";
    return empty(this.job ? "This job is removed." : "No such job.", this.job ? `Its last state was ${this.job.state}. ${rule}` : `${rule} Another tenant's job is not shown.`,
      html`<a class="btn" href=${queueLink(this.queue)}>${this.queue}</a>`, command(`jobwire queue job ${this.queue.replace(/[^\w.{}-]/g, "")} ${this.id.replace(/[^\w.-]/g, "")}`));
  }

  view() {
    if (this.gone) return this.goneView();
    const { job, queueInfo: info } = this;
    if (!job) return nothing;
    const shape = asJob(job, this.events);
    const life = lifeOf(shape, asLife(job, this.events));
    const waits = job.state === "waiting" || job.state === "prioritized";
    const noWorker = waits && (info?.workers === 0 || info?.paused);
    return html`${this.head()}${refusalView(this.refusal)}
      ${job.problem ? html`<div class="notice bad">${icon("warn")}<div><b class="bold">No worker can run this job.</b> ${job.problem}.</div></div>` : nothing}
      ${noWorker ? html`<div class="notice">${icon(info.paused ? "pause" : "warn")}<div>${info.paused ? html`<b class="bold">The queue is paused.</b> No worker starts this job.` : html`<b class="bold">No worker takes jobs from ${this.queue}.</b> Start one:<div>${command("jobwire worker module:app")}</div>`}</div></div>` : nothing}
      <div class="job"><div>${lifeline(shape, life, { noWorker, heard: this.follower?.state === "ended" })}${attemptsView(shape, life)}${this.tabs()}${this.tabView()}</div>${this.rail(shape)}</div>`;
  }
}

export const open = (route) => new QueueJobScreen(route);
