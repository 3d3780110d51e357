// One queue: jobs by state, flows that wait, schedulers, and acts on many jobs at once.
import { html, nothing, icon, bars, command, empty, id, meter, openRow, time } from "../ui.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { live } from "../../vendor/lit-html/directives/live.js";
import { may, update } from "../store.js";
import { call, get, post } from "../api.js";
import { ask } from "../dialog.js";
import { each, pick } from "../acts.js";
import { age, count, duration, now, plural, shortId, shortWorker, zone } from "../format.js";
import { replace } from "../router.js";
import { pollNow } from "../poll.js";
import { refusalView } from "../jobview.js";
import { treeView } from "../flow.js";
import { ENDED, STATES, WIRE, listJobs, ofKey, percentIn, promoteJob, queueJobLink, queueLink, queuePath, jobPath, removeJob, retryJob, shapeOf, stateView, wireSwitch, wordOf } from "../queues.js";
import { askPause, waitingIn } from "./queues.js";

const PAGE = 50;
const MOST = 200;
const FEW = 6;
const TREES = 3;

const every = (ms) => (ms % 3600e3 === 0 ? `every ${ms / 3600e3} h` : ms % 60e3 === 0 ? `every ${ms / 60e3} min` : `every ${duration(ms)}`);

function note(job) {
  const percent = percentIn(job.progress);
  if (job.state === "failed") return html`<span class="failed" title=${job.failed_reason ?? ""}>${(job.failed_reason ?? "failed").split("\n")[0]}</span>`;
  if (job.state === "active") return percent === null ? "" : meter(percent);
  if (job.state === "delayed") return job.attempts_made ? `retry ${job.attempts_made + 1}` : job.scheduler ? "scheduler" : "";
  if (job.parent_key) return html`child of ${shortId(ofKey(job.parent_key).id)}`;
  if (job.priority) return `priority ${job.priority}`;
  return job.scheduler ? "scheduler" : "";
}

class Queue {
  info = null;
  rows = null; // of the chosen state, or of a search
  page = null;
  scanned = 0;
  older = false; // older pages are shown: the list is not refreshed
  held = 0; // jobs that are not shown while the pointer rests on the list
  picked = new Set();
  anchor = -1;
  running = [];
  recent = [];
  trees = [];
  schedulers = null;
  gone = null;
  typedText = ""; // in the filter; the URL follows a moment later

  constructor(route) {
    this.queue = route.query.get("queue");
    this.changed(route);
  }

  title = () => html`<a href=${queueLink()}>Queues</a><span class="sep">/</span>${this.queue}`;

  changed(route) {
    const state = route.query.get("state") ?? "";
    const q = route.query.get("q") ?? "";
    if (state === this.state && q === this.q) return;
    this.state = STATES.includes(state) ? state : "";
    this.q = q;
    if (this.typedText.trim() !== q) this.typedText = q;
    this.rows = null;
    this.result = this.refusal = "";
    this.fresh();
  }

  get lists() {
    return this.state || this.q;
  }

  fresh() {
    Object.assign(this, { older: false, held: 0, picked: new Set(), anchor: -1, pointed: false });
  }

  async poll(rare) {
    if (this.gone && !rare) return;
    try {
      this.info = await get(queuePath(this.queue));
      this.gone = null;
    } catch (problem) {
      if (problem.status !== 404 && problem.status !== 422) throw problem;
      this.gone = problem;
      return;
    }
    if (this.lists) return this.pollList();
    await this.pollOverview(rare || !this.schedulers);
  }

  query = (first) => ({ state: this.state, q: this.q, first, limit: PAGE });

  async pollList() {
    const asked = this.state + this.q;
    if (this.older) return;
    const page = await listJobs(this.queue, this.query());
    if (this.older || asked !== this.state + this.q) return;
    Object.assign(this, { page, scanned: page.scanned });
    // Rows stay where they are under the pointer and while some are selected.
    if (this.rows && (this.pointed || this.picked.size)) {
      const byId = new Map(page.jobs.map((job) => [job.id, job]));
      const shown = new Set(this.rows.map((job) => job.id));
      this.rows = this.rows.map((job) => byId.get(job.id) ?? job);
      this.held = page.jobs.filter((job) => !shown.has(job.id)).length;
    } else Object.assign(this, { rows: page.jobs, held: 0 });
  }

  async pollOverview(rare) {
    const { counts, schedulers } = this.info;
    const few = (state) => (counts[state] ? listJobs(this.queue, { state, limit: FEW }).then((page) => page.jobs) : []);
    const [running, completed, failed] = await Promise.all([few("active"), few("completed"), few("failed")]);
    this.running = running;
    this.recent = [...completed, ...failed].sort((a, b) => b.finished_on - a.finished_on).slice(0, FEW);
    if (!rare) return;
    const parents = counts["waiting-children"] ? await listJobs(this.queue, { state: "waiting-children", limit: TREES }) : { jobs: [] };
    const trees = parents.jobs.map((job) => get(jobPath(this.queue, job.id, "/flow")).catch(() => null));
    this.trees = (await Promise.all(trees)).filter(Boolean);
    this.schedulers = schedulers ? await get(queuePath(this.queue, "/schedulers")) : { schedulers: [], total: 0 };
  }

  further = async () => {
    try {
      const page = await listJobs(this.queue, this.query(this.page.next));
      this.older = true;
      this.rows = [...this.rows, ...page.jobs].slice(-MOST);
      this.scanned += page.scanned;
      this.page = page;
    } catch (problem) {
      this.refusal = problem.message;
    }
    update();
  };

  newest = () => {
    this.fresh();
    pollNow();
  };

  // Acts. Each says what it did, in numbers of the server.
  done(text, refusal = "") {
    this.result = text;
    this.refusal = refusal;
    this.schedulers = null;
    this.newest();
  }

  async tell(act, text) {
    try {
      this.done(text(await act()));
    } catch (problem) {
      this.done("", problem.message);
    }
  }

  pause = () => askPause(this.info, () => this.tell(() => post(queuePath(this.queue, "/pause")), () => ""));
  resume = () => this.tell(() => post(queuePath(this.queue, "/resume")), () => "");

  all(verb, title, text, yes, word, body, danger = false) {
    ask(title, text, () => this.tell(() => post(queuePath(this.queue, `/${verb}`), body && JSON.stringify(body)), ({ count: n }) => `${plural(n, "job")} ${word}.`), { yes, danger });
  }

  // What can be done with all jobs of the chosen state; the count is that of the state.
  stateActs() {
    if (!may("admin") || this.q) return nothing;
    const n = this.info.counts[this.state];
    if (!n) return nothing;
    const jobs = plural(n, `${wordOf(this.state).toLowerCase()} job`);
    const retry = html`<button class="btn slim" @click=${() => this.all("retry", `Retry ${jobs}?`, "They wait again, in the order in which they ended, and keep their ids.", `Retry ${count(n)}`, "wait again", { state: this.state })}>${icon("again")}Retry all ${count(n)}</button>`;
    const remove = html`<button class="btn slim danger" @click=${() => this.all("clean", `Remove ${jobs}?`, "They are deleted with their data, results and logs.", `Remove ${count(n)}`, "removed", { state: this.state }, true)}>Remove all ${count(n)}</button>`;
    const promote = html`<button class="btn slim" @click=${() => this.all("promote", `Promote ${jobs}?`, "They run as soon as workers are free, and do not wait for their time.", `Promote ${count(n)}`, "promoted")}>Promote all ${count(n)}</button>`;
    return { failed: [retry, remove], completed: remove, delayed: [promote, remove], waiting: remove, prioritized: remove }[this.state] ?? nothing;
  }

  ids = () => this.rows.map((job) => job.id);

  pickAll(on) {
    this.picked = new Set(on ? this.ids() : []);
    update();
  }

  escape = () => this.pickAll(false);

  many(act, word, title, yes, text, danger = false) {
    const ids = [...this.picked];
    ask(title, text, async () => {
      const { done, refusal } = await each(ids, act(this.queue), word);
      const counted = `${plural(done, "job")} ${word}`;
      this.done(refusal ? "" : `${counted}.`, refusal ? `${counted}; ${ids.length - done} not: ${refusal.message}` : "");
    }, { yes, danger });
  }

  // Only acts that fit every selected job are offered.
  pickBar() {
    const chosen = (this.rows ?? []).filter((job) => this.picked.has(job.id));
    if (!chosen.length) return nothing;
    const n = chosen.length;
    const jobs = plural(n, "job");
    const are = (...states) => chosen.every((job) => states.includes(job.state));
    return html`<div class="pick" role="region" aria-label="Selection"><b class="bold">${n} selected</b>
      ${are(...ENDED) ? html`<button class="btn" @click=${() => this.many(retryJob, "wait again", `Retry ${jobs}?`, `Retry ${n}`, "The same jobs run again, with the same ids and data.")}>${icon("again")}Retry ${n}</button>` : nothing}
      ${are("delayed") ? html`<button class="btn" @click=${() => this.many(promoteJob, "promoted", `Promote ${jobs}?`, `Promote ${n}`, "They run as soon as workers are free.")}>Promote ${n}</button>` : nothing}
      ${chosen.some((job) => job.state === "active") ? nothing : html`<button class="btn danger" @click=${() => this.many(removeJob, "removed", `Remove ${jobs}?`, `Remove ${n}`, "They are deleted with their data and logs, and with their children.", true)}>Remove ${n}</button>`}
      <button class="btn ghost" @click=${this.escape}>Clear<kbd class="wide">esc</kbd></button></div>`;
  }

  // Views

  strip() {
    const { counts } = this.info;
    return html`<nav class="states" aria-label="State">${STATES.map((state) => {
      const here = state === this.state;
      return html`<a href=${queueLink(this.queue, { state: here ? "" : state, q: here ? "" : this.q })} aria-current=${here ? "true" : nothing}
        ><span class="st ${shapeOf(state)}">${icon(shapeOf(state), "")}<span class="cut">${state}</span></span><b class=${counts[state] ? "" : "zero"}>${count(counts[state])}</b></a>`;
    })}</nav>`;
  }

  notices() {
    const { info } = this;
    const waiting = waitingIn(info);
    const oldest = info.oldest_waiting_ms == null ? "" : ` The oldest has waited ${duration(info.oldest_waiting_ms)}.`;
    if (info.paused) return html`<div class="notice">${icon("pause")}<div><b class="bold">This queue is paused.</b> ${plural(waiting, "job")} ${waiting === 1 ? "waits" : "wait"}; no worker of any program starts one.</div></div>`;
    if (info.workers === 0 && waiting) return html`<div class="notice">${icon("warn")}<div><b class="bold">No worker takes jobs from this queue.</b>${oldest} Workers of the PyPI package are not seen.<div>${command("jobwire worker module:app")}</div></div></div>`;
    if (info.stalled) return html`<div class="notice">${icon("warn")}<div><b class="bold">${plural(info.stalled, "active job")} without a lock.</b> The worker has died or is blocked; the next stalled check of a worker requeues ${info.stalled === 1 ? "it" : "them"}.</div></div>`;
    return nothing;
  }

  row(job, at, pickable, brief, workers) {
    const { picked } = this;
    const began = job.processed_on;
    const ran = began && job.state !== "waiting" && job.state !== "prioritized" ? (job.finished_on ?? (job.state === "active" ? now() : null)) : null;
    const right = job.state === "delayed" ? (job.due_ts > now() ? `in ${age(job.due_ts - now())}` : "now") : ran ? duration(ran - began) : duration(now() - job.timestamp);
    const attempts = job.attempts_made || job.attempts_started;
    return html`<tr class=${picked.has(job.id) ? "picked" : ""} @click=${openRow}>
      ${pickable ? html`<td class="hide"><input type="checkbox" aria-label="Select ${job.id}" .checked=${live(picked.has(job.id))} @click=${(event) => pick(this, this.ids(), at, event)} /></td>` : nothing}
      <td>${stateView(job.state, job.state)}</td>
      <td class="bold task cut"><a href=${queueJobLink(this.queue, job.id)}>${job.name || "no name"}</a></td>
      <td class="id">${id(job.id)}</td>
      <td class="right at">${time(job.finished_on && ENDED.includes(job.state) ? job.finished_on : job.timestamp, { day: true })}</td>
      <td class="right span ${job.state === "delayed" ? "scheduled" : ""}">${right}</td>
      ${brief ? nothing : html`<td class="right hide">${attempts || ""}${job.attempts > 1 ? html`<span class="muted"> / ${job.attempts}</span>` : nothing}</td>`}
      ${workers ? html`<td class="muted hide low cut note">${shortWorker(job.processed_by) ?? ""}</td>` : nothing}
      <td class="muted hide cut note">${note(job)}</td></tr>`;
  }

  table(rows, pickable, brief = false) {
    const workers = !brief && rows.some((job) => job.processed_by);
    const states = new Set(rows.map((job) => job.state));
    const [only] = states.size === 1 ? states : [""];
    const all = rows.length > 0 && rows.every((job) => this.picked.has(job.id));
    const times = ENDED.includes(only) ? "Ended" : states.size > 1 && [...states].every((state) => ENDED.includes(state)) ? "Ended" : "Added";
    const span = only === "delayed" ? "Due" : times === "Ended" || only === "active" ? "Ran" : "Age";
    return html`<table class="hit jobs" @mouseenter=${() => (this.pointed = true)} @mouseleave=${() => (this.pointed = false)}>
      <thead><tr>${pickable ? html`<th><input type="checkbox" aria-label="Select all rows" .checked=${live(all)} @click=${(event) => this.pickAll(event.target.checked)} /></th>` : nothing}
        <th>State</th><th>Name</th><th>Id</th><th class="right">${times}, ${zone.name}</th><th class="right">${span}</th>${brief ? nothing : html`<th class="right">Attempts</th>`}${workers ? html`<th class="low">Worker</th>` : nothing}<th>Note</th></tr></thead>
      <tbody>${repeat(rows, (job) => job.id, (job, at) => this.row(job, at, pickable, brief, workers))}</tbody></table>`;
  }

  // How far the list has looked, in words.
  scan() {
    const { total, next } = this.page;
    const order = ENDED.includes(this.state) ? "newest first" : "the next one first";
    const text = this.q
      ? `Looked at ${count(this.scanned)} of ${plural(total, "job")}.`
      : next ? `${count(this.rows.length)} of ${plural(total, "job")}, ${order}.` : `${plural(total, "job")}, ${order}.`;
    return html`<div class="scan"><span>${text}</span>
      ${next ? html`<button class="btn slim" @click=${this.further}>Look further</button>` : nothing}
      ${this.older ? html`<button class="btn slim" @click=${this.newest}>Back to the first</button>` : nothing}</div>`;
  }

  list() {
    if (!this.rows) return nothing;
    const what = this.state ? `${wordOf(this.state).toLowerCase()} job` : "job";
    if (!this.rows.length)
      return empty(`No ${what}${this.q ? ` with “${this.q}” in its name or id` : ""}.`, this.q ? `Looked at ${count(this.scanned)} of ${plural(this.page.total, "job")} of ${this.queue}.` : `${this.queue} has none in this state.`,
        this.page.next ? html`<button class="btn" @click=${this.further}>Look further</button>` : nothing, html`<a class="btn" href=${queueLink(this.queue)}>Clear filter</a>`);
    return html`<div class="tabhead"><span class="muted small grow">${this.q ? html`With “${this.q}” in name or id` : nothing}</span>
        ${this.held ? html`<button class="btn slim" @click=${this.newest}>${plural(this.held, "new job")}</button>` : nothing}${this.stateActs()}</div>
      ${this.table(this.rows, may("submit"))}${this.scan()}`;
  }

  rates() {
    const { completed, failed } = this.info;
    const minutes = (rates) => Array.from({ length: 60 }, (_, i) => rates.by_minute[59 - i] ?? 0);
    if (!completed.by_minute.length && !failed.by_minute.length) return nothing;
    const both = minutes(completed).map((n, i) => n + minutes(failed)[i]);
    return html`<h2>Ended per minute</h2>
      <div class="rates">${bars(both, minutes(failed), { width: 340, height: 64, label: "ended jobs by minute in the last hour, failed ones in red" })}</div>
      <div class="row tiny muted between"><span>1 h ago</span><span>now</span></div>`;
  }

  facts() {
    const { info } = this;
    const rows = [
      ["Workers", info.workers ?? "unknown"],
      ["Oldest waiting", info.oldest_waiting_ms == null ? "none" : duration(info.oldest_waiting_ms)],
      ["Stalled", info.stalled],
      ["Global concurrency", info.concurrency ?? "none"],
      ["Rate limit", info.rate_limit ? `${count(info.rate_limit.max)} in ${duration(info.rate_limit.duration)}` : "none"],
      info.tenant && ["Tenant", info.tenant],
    ];
    return html`<dl class="pairs">${rows.filter(Boolean).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
  }

  removeScheduler(scheduler) {
    ask(`Remove the scheduler ${scheduler.id}?`, "Its delayed job is removed with it. A job that waits or runs already goes on.", () => this.tell(() => call("DELETE", queuePath(this.queue, `/schedulers/${encodeURIComponent(scheduler.id)}`)), () => `Scheduler ${scheduler.id} removed.`), { yes: "Remove scheduler", no: "Leave it", danger: true });
  }

  schedulersView() {
    const found = this.schedulers?.schedulers ?? [];
    if (!found.length) return nothing;
    return html`<section><header><h2>Schedulers</h2>${this.schedulers.total > found.length ? html`<span class="muted small">the next ${found.length} of ${count(this.schedulers.total)}</span>` : nothing}</header>
      <table class="schedulers"><thead><tr><th>Scheduler</th><th>When</th><th>Job</th><th class="right">Made</th><th class="right">Next, ${zone.name}</th><th class="right low">Then</th>${may("admin") ? html`<th><span class="vh">Act</span></th>` : nothing}</tr></thead><tbody>
      ${found.map((each) => html`<tr><td class="bold cut task">${each.id}</td>
        <td><code>${each.repeat.pattern ?? every(each.repeat.every)}</code> <span class="muted">${each.repeat.pattern ? (each.repeat.tz ?? "UTC") : ""}</span></td>
        <td class="cut task" data-label="Job">${each.name}</td><td class="right" data-label="Made">${count(each.made)}${each.repeat.limit ? html`<span class="muted"> / ${count(each.repeat.limit)}</span>` : nothing}</td>
        <td class="right" data-label="Next">${each.next ? html`${time(each.next, { day: true })} <span class="muted">${each.next > now() ? `in ${age(each.next - now())}` : "due"}</span>` : html`<span class="muted">ended</span>`}</td>
        <td class="right muted low hide">${each.next_runs.slice(1).map((ts, i) => html`${i ? ", " : ""}${time(ts, { day: true })}`)}</td>
        ${may("admin") ? html`<td class="right act"><button class="btn slim danger" aria-label="Remove ${each.id}" @click=${() => this.removeScheduler(each)}>Remove</button></td>` : nothing}</tr>`)}</tbody></table></section>`;
  }

  obliterate = () => {
    const n = STATES.reduce((total, state) => total + this.info.counts[state], 0);
    ask(`Delete ${this.queue} with ${plural(n, "job")}?`, "The queue is deleted with its jobs, schedulers, events and counters. A queue whose jobs are being run is refused.", () => this.tell(() => post(queuePath(this.queue, "/obliterate")), ({ count: gone }) => `The queue is deleted, with ${plural(gone, "job")}.`), { yes: `Delete queue and ${plural(n, "job")}`, no: "Leave it", danger: true });
  };

  overview() {
    const { running, recent, trees } = this;
    const none = !running.length && !recent.length && !trees.length;
    const side = html`${this.rates()}${this.facts()}`;
    return html`<div class="two queue"><div>
        ${trees.map((tree) => html`<section><header><h2>Flow</h2><span class="muted small"><code>${shortId(tree.job.id)}</code> waits for ${tree.job.counts.pending} of ${plural(tree.job.counts.pending + tree.job.counts.completed + tree.job.counts.failed + tree.job.counts.ignored, "child", "children")}</span></header>${treeView(tree, this.queue)}</section>`)}
        ${running.length ? html`<section><header><h2>Running</h2></header>${this.table(running, false, true)}</section>` : nothing}
        ${recent.length ? html`<section><header><h2>Just ended</h2></header>${this.table(recent, false, true)}</section>` : nothing}
        ${none ? html`<section><p class="muted small">Nothing is running, and nothing has ended yet.</p></section>` : nothing}</div>
      <section class="side-facts">${side}</section></div>${this.schedulersView()}
      ${may("admin") ? html`<section><button class="btn slim danger" @click=${this.obliterate}>Delete queue…</button></section>` : nothing}`;
  }

  submit = async () => (await import("../addjob.js")).openAdd({ queue: this.queue, name: this.rows?.[0]?.name ?? this.recent[0]?.name ?? "" });

  typed = (event) => {
    clearTimeout(this.timer);
    this.typedText = event.target.value;
    const q = this.typedText.trim();
    this.timer = setTimeout(() => replace(queueLink(this.queue, { state: this.state, q })), 250);
  };

  view() {
    if (this.gone) return empty(this.gone.status === 404 ? "No such queue." : "This is no name of a queue.", "A queue exists from its first job on. Another tenant's queue is not shown.", html`<a class="btn" href=${queueLink()}>All queues</a>`);
    if (!this.info) return nothing;
    return html`<div class="bar"><div class="filter"><label class="vh" for="filter">Filter by name or id</label>${icon("find")}
        <input id="filter" type="search" placeholder="Job name or id" spellcheck="false" .value=${live(this.typedText)} @input=${this.typed} /></div>
        ${wireSwitch(WIRE)}<span class="grow"></span>
        ${may("admin") ? (this.info.paused ? html`<button class="btn primary" @click=${this.resume}>Resume queue</button>` : html`<button class="btn" @click=${this.pause}>${icon("pause")}Pause queue</button>`) : nothing}</div>
      ${this.notices()}${this.strip()}${refusalView(this.refusal)}
      ${this.result ? html`<p class="small soft gap" role="status">${this.result}</p>` : nothing}
      ${this.lists ? this.list() : this.overview()}${this.pickBar()}`;
  }
}

export const open = (route) => new Queue(route);
