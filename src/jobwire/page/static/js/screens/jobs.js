// Jobs: state tabs, a filter, the number of scanned jobs, operations on many. At most 200 rows are in the page.
import { html, nothing, icon, state, stateOf, meter, percentOf, command, empty, id, openRow, ended, time, word } from "../ui.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { live } from "../../vendor/lit-html/directives/live.js";
import { app, may, serves, update } from "../store.js";
import { get } from "../api.js";
import { ask } from "../dialog.js";
import { cancelJob, each, pick, runAgain } from "../acts.js";
import { clock, count, duration, now, plural, shortWorker, zone } from "../format.js";
import { jobLink, link, replace } from "../router.js";
import { pollNow } from "../poll.js";
import { queueLink, wireSwitch } from "../queues.js";

const PAGE = 50;
const MOST = 200;
const TABS = ["", "waiting", "scheduled", "running", "done", "failed", "canceled"];
const FILTERS = {
  waiting: { status: "queued", delayed: "false" },
  scheduled: { status: "queued", delayed: "true" },
  running: { status: "running" },
  done: { status: "done" },
  failed: { status: "error" },
  canceled: { status: "canceled" },
};
const canRunAgain = (job) => job.status === "error" || job.status === "canceled";

function note(job) {
  const percent = percentOf(job.progress);
  if (job.due_ts) return html`due in ${duration(job.due_ts - now())}`;
  if (job.status === "running" && percent !== null) return meter(percent);
  if (job.status === "running") return job.cancel_ts ? "stopping" : (job.progress?.message ?? "");
  if (job.status === "error") return html`<code class="failed">${job.error?.code ?? "error"}</code>`;
  return job.retry_of ? "run again" : "";
}

class Jobs {
  rows = [];
  page = null; // the last page read: scanned, total, cursor
  scanned = 0;
  older = false; // older pages are shown: the list is not refreshed
  held = 0; // new jobs that are not shown while the pointer rests on the list
  picked = new Set();
  anchor = -1;
  pointed = false;
  typedText = ""; // in the filter; the URL follows a moment later
  title = () => "Jobs";

  constructor(route) {
    this.changed(route);
  }

  changed(route) {
    this.state = TABS.includes(route.query.get("state") ?? "") ? (route.query.get("state") ?? "") : "";
    this.q = route.query.get("q") ?? "";
    if (this.typedText.trim() !== this.q) this.typedText = this.q;
    this.task = route.query.get("task") ?? "";
    this.fresh();
  }

  fresh = () => {
    Object.assign(this, { older: false, held: 0, picked: new Set(), reading: true, pointed: false });
  };

  query = (cursor) => ({ ...FILTERS[this.state], q: this.q, task: this.task, limit: PAGE, cursor });

  async poll() {
    // A gateway of queues only, as `jobwire look` starts it, has no other jobs.
    if (!serves("jobs")) return replace(queueLink("", { q: this.q }));
    if (this.older) return;
    const asked = [this.state, this.q, this.task].join();
    const page = await get("/v1/jobs", this.query());
    if (this.older || asked !== [this.state, this.q, this.task].join()) return;
    // Rows stay where they are under the pointer and while some are selected.
    if (!this.reading && (this.pointed || this.picked.size)) {
      const byId = new Map(page.jobs.map((job) => [job.job_id, job]));
      const shown = new Set(this.rows.map((job) => job.job_id));
      this.rows = this.rows.map((job) => byId.get(job.job_id) ?? job);
      this.held = page.jobs.filter((job) => !shown.has(job.job_id)).length;
    } else {
      this.rows = page.jobs;
      this.held = 0;
    }
    this.reading = false;
    this.page = page;
    this.scanned = page.scanned;
  }

  further = async () => {
    try {
      const page = await get("/v1/jobs", this.query(this.page.cursor));
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

  ids = () => this.rows.map((job) => job.job_id);

  pickAll(on) {
    this.picked = new Set(on ? this.ids() : []);
    update();
  }

  escape = () => this.pickAll(false);

  act(act, word, title, yes, text, danger = false) {
    const ids = [...this.picked];
    ask(title, text, async () => {
      const { done, refusal } = await each(ids, act, word);
      this.refusal = refusal ? `${plural(done, "job")} ${word}; ${ids.length - done} not: ${refusal.message}` : "";
      this.newest();
    }, { yes, danger });
  }

  // Only acts that fit every selected job are offered.
  pickBar() {
    const chosen = this.rows.filter((job) => this.picked.has(job.job_id));
    if (!chosen.length) return nothing;
    const n = chosen.length;
    const jobs = plural(n, "job");
    return html`<div class="pick" role="region" aria-label="Selection"><b class="bold">${n} selected</b>
      ${chosen.every(canRunAgain) ? html`<button class="btn" @click=${() => this.act(runAgain, "submitted again", `Run ${jobs} again?`, `Run ${n} again`, "New jobs with the same payloads. The old ones stay as they are.")}>${icon("again")}Run ${n} again</button>` : nothing}
      ${chosen.every((job) => !ended(job)) ? html`<button class="btn danger" @click=${() => this.act(cancelJob, "canceled", `Cancel ${jobs}?`, `Cancel ${n}`, "Waiting jobs end at once; running ones are stopped by their worker.", true)}>Cancel ${n}</button>` : nothing}
      ${!chosen.every(canRunAgain) && chosen.some(ended) ? html`<span class="muted">No act fits all of them</span>` : nothing}
      <button class="btn ghost" @click=${this.escape}>Clear<kbd class="wide">esc</kbd></button></div>`;
  }

  row(job, at) {
    const begun = job.started_ts;
    const waited = begun ? begun - job.created_ts : job.status === "queued" && !job.due_ts ? now() - job.created_ts : null;
    const ran = begun && job.status !== "queued" ? (ended(job) ? job.updated_ts : now()) - begun : null;
    const late = !begun && waited > 60000;
    return html`<tr class=${this.picked.has(job.job_id) ? "picked" : ""} @click=${openRow}>
      ${may("submit") ? html`<td class="hide"><input type="checkbox" aria-label="Select ${job.job_id}" .checked=${live(this.picked.has(job.job_id))} @click=${(event) => pick(this, this.ids(), at, event)} /></td>` : nothing}
      <td>${state(stateOf(job))}</td>
      <td class="bold task cut"><a href=${jobLink("streams", job.job_id)}>${job.task}</a></td>
      <td class="id">${id(job.job_id)}</td>
      ${this.hasQueues ? html`<td class="muted hide low">${job.queue ?? ""}</td>` : nothing}
      <td class="right at">${time(job.created_ts, { day: true })}</td>
      <td class="right ${late ? "warn bold" : ""} ${ran === null ? "span" : "hide"}">${waited === null ? "" : duration(waited)}</td>
      <td class="right ${ran === null ? "hide" : "span"}">${ran === null ? "" : duration(ran)}</td>
      <td class="right hide">${job.attempt}</td>
      <td class="muted hide low cut note">${shortWorker(job.worker) ?? ""}</td>
      <td class="muted hide cut note">${note(job)}</td></tr>`;
  }

  table() {
    this.hasQueues = this.rows.some((job) => job.queue && job.queue !== "default");
    const all = this.rows.length > 0 && this.rows.every((job) => this.picked.has(job.job_id));
    return html`<table class="hit jobs" @mouseenter=${() => (this.pointed = true)} @mouseleave=${() => (this.pointed = false)}>
      <thead><tr>${may("submit") ? html`<th><input type="checkbox" aria-label="Select all rows" .checked=${live(all)} @click=${(event) => this.pickAll(event.target.checked)} /></th>` : nothing}
        <th>State</th><th>Task</th><th>Id</th>${this.hasQueues ? html`<th class="low">Queue</th>` : nothing}<th class="right">Submitted, ${zone.name}</th><th class="right">Waited</th><th class="right">Ran</th><th class="right">Attempt</th><th class="low">Worker</th><th>Note</th></tr></thead>
      <tbody>${repeat(this.rows, (job) => job.job_id, (job, at) => this.row(job, at))}</tbody></table>`;
  }

  // How far the list has looked, in words.
  scan() {
    const { total, cursor } = this.page;
    const last = this.rows.at(-1);
    const filtered = this.state || this.q || this.task;
    return html`<div class="scan">
      <span>${cursor ? html`Looked at ${count(this.scanned)} of ${count(total)} jobs${last ? html`, back to ${time(last.created_ts, { day: true })} ${zone.name}` : nothing}.` : html`${filtered ? html`All ${plural(total, "job")} looked at, ${count(this.rows.length)} shown.` : html`${plural(this.rows.length, "job")}, that is all.`}`}</span>
      ${cursor ? html`<button class="btn slim" @click=${this.further}>Look further</button>` : nothing}
      ${this.older ? html`<button class="btn slim" @click=${this.newest}>Back to the newest</button>` : nothing}</div>`;
  }

  nothingFound() {
    const { total, cursor } = this.page;
    if (!this.state && !this.q && !this.task) return empty("No job yet.", "Send one from here, or from a terminal:", command('jobwire submit chat "hello" --follow'));
    const what = `${this.state ? `${word(this.state).toLowerCase()} job` : "job"}${this.q ? ` with “${this.q}” in its id or task` : ""}${this.task ? ` of the task ${this.task}` : ""}`;
    return empty(`No ${what}.`, cursor ? `Looked at ${count(this.scanned)} of ${count(total)} jobs.` : `Looked at all ${plural(total, "job")}.`,
      cursor ? html`<button class="btn" @click=${this.further}>Look further</button>` : nothing,
      html`<a class="btn" href="#/jobs">Clear filter</a>`);
  }

  // Counts that the server knows without a scan; unknown ones are blank.
  tabCount(name) {
    const row = app.overview?.systems.find((each) => each.system === "jobs");
    if (name === "") return this.page?.total;
    return row && { waiting: row.waiting, scheduled: row.delayed, running: row.running }[name];
  }

  typed = (event) => {
    clearTimeout(this.timer);
    this.typedText = event.target.value;
    const q = this.typedText.trim();
    this.timer = setTimeout(() => replace(link(["jobs"], { state: this.state, task: this.task, q })), 250);
  };

  view() {
    return html`<div class="bar"><div class="filter"><label class="vh" for="filter">Filter by task or id</label>${icon("find")}
        <input id="filter" type="search" placeholder="Task or id" spellcheck="false" .value=${live(this.typedText)} @input=${this.typed} /></div>
        ${wireSwitch("streams")}${this.task ? html`<span class="tag">task ${this.task}</span><a class="link small" href=${link(["jobs"], { state: this.state, q: this.q })}>all tasks</a>` : nothing}
        <span class="grow"></span>${this.held ? html`<button class="btn slim" @click=${this.newest}>${plural(this.held, "new job")}</button>` : html`<span class="muted small wide">Newest first</span>`}</div>
      <nav class="tabs" aria-label="State">${TABS.map((name) => {
        const n = this.tabCount(name);
        return html`<a href=${link(["jobs"], { state: name, q: this.q, task: this.task })} aria-current=${name === this.state ? "true" : nothing}>${name ? html`<span class="st ${name}">${icon(name, "")}</span>${word(name)}` : "All"}${n == null ? nothing : html`<span class="n">${count(n)}</span>`}</a>`;
      })}</nav>
      ${this.refusal ? html`<div class="notice bad gap" role="alert">${icon("warn")}<div>${this.refusal}</div></div>` : nothing}
      ${!this.page ? nothing : this.rows.length ? html`${this.table()}${this.scan()}` : this.nothingFound()}${this.pickBar()}`;
  }
}

export const open = (route) => new Jobs(route);
