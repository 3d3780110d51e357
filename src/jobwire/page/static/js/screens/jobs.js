// Jobs: state tabs, a filter, the number of scanned jobs, operations on many.
import {
  html,
  nothing,
  icon,
  state,
  stateOf,
  meter,
  percentOf,
  command,
  empty,
  id,
  openRow,
  ended,
  refusalView,
  time,
  word,
} from "../ui.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { app, serves, update } from "../store.js";
import { get } from "../api.js";
import { cancelJob, runAgain } from "../acts.js";
import { count, duration, now, plural, shortWorker, zone } from "../format.js";
import { filterField, wireSwitch } from "../bar.js";
import { JobList, PAGE } from "../lists.js";
import { jobLink, link, replace } from "../router.js";

const FILTERS = {
  "": {},
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
  if (job.status === "error")
    return html`<code class="failed">${job.error?.code ?? "error"}</code>`;
  return job.retry_of ? "run again" : "";
}

class Jobs extends JobList {
  typedText = "";
  result = "";
  refusal = "";
  title = () => "Jobs";

  constructor(route) {
    super();
    this.changed(route);
  }

  changed(route) {
    const state = route.query.get("state") ?? "";
    this.state = state in FILTERS ? state : "";
    this.q = route.query.get("q") ?? "";
    if (this.typedText.trim() !== this.q) this.typedText = this.q;
    this.task = route.query.get("task") ?? "";
    this.showResult("");
    this.fresh();
  }

  href = (q, more = {}) => link(["jobs"], { state: this.state, task: this.task, q, ...more });
  idOf = (job) => job.job_id;
  asked = () => [this.state, this.q, this.task].join("\n");
  read = (cursor) =>
    get("/v1/jobs", { ...FILTERS[this.state], q: this.q, task: this.task, limit: PAGE, cursor });
  next = (page) => page.cursor;

  async poll() {
    // A gateway of queues only, as `jobwire look` starts it, has no other jobs.
    if (!serves("jobs")) return replace(link(["jobs"], { wire: "bullmq", q: this.q }));
    await this.readNewest();
  }

  showResult(result, refusal = "") {
    Object.assign(this, { result, refusal });
    update();
  }

  acts = (chosen, jobs) => {
    const n = chosen.length;
    const again = {
      title: `Run ${jobs} again?`,
      yes: `Run ${n} again`,
      text: "New jobs with the same payloads. The old ones stay as they are.",
    };
    const cancel = {
      title: `Cancel ${jobs}?`,
      yes: `Cancel ${n}`,
      text: "Waiting jobs end at once; running ones are stopped by their worker.",
      danger: true,
    };
    if (chosen.every(canRunAgain))
      return html`<button class="btn" @click=${() => this.actOnPicked(runAgain, "submitted again", again)}>${icon("again")}Run ${n} again</button>`;
    if (!chosen.some(ended))
      return html`<button class="btn danger" @click=${() => this.actOnPicked(cancelJob, "canceled", cancel)}>Cancel ${n}</button>`;
    return html`<span class="muted">No act fits all of them</span>`;
  };

  row(job, at, queues) {
    const begun = job.started_ts;
    const waited = begun
      ? begun - job.created_ts
      : job.status === "queued" && !job.due_ts
        ? now() - job.created_ts
        : null;
    const ran =
      begun && job.status !== "queued" ? (ended(job) ? job.updated_ts : now()) - begun : null;
    const late = !begun && waited > 60000;
    return html`<tr class=${this.picked.has(job.job_id) ? "picked" : ""} @click=${openRow}>${this.box(job, at)}
      <td>${state(stateOf(job))}</td>
      <td class="bold task cut"><a href=${jobLink("streams", job.job_id)}>${job.task}</a></td>
      <td class="id">${id(job.job_id)}</td>
      ${queues ? html`<td class="muted hide low">${job.queue ?? ""}</td>` : nothing}
      <td class="right at">${time(job.created_ts, { day: true })}</td>
      <td class="right ${late ? "warn bold" : ""} ${ran === null ? "span" : "hide"}">${waited === null ? "" : duration(waited)}</td>
      <td class="right ${ran === null ? "hide" : "span"}">${ran === null ? "" : duration(ran)}</td>
      <td class="right hide">${job.attempt}</td>
      <td class="muted hide low cut note">${shortWorker(job.worker) ?? ""}</td>
      <td class="muted hide cut note">${note(job)}</td></tr>`;
  }

  table() {
    const queues = this.rows.some((job) => job.queue && job.queue !== "default");
    return this.tableView(
      html`<th>State</th><th>Task</th><th>Id</th>${queues ? html`<th class="low">Queue</th>` : nothing}<th class="right">Submitted, ${zone.name}</th><th class="right">Waited</th><th class="right">Ran</th><th class="right">Attempt</th><th class="low">Worker</th><th>Note</th>`,
      repeat(this.rows, this.idOf, (job, at) => this.row(job, at, queues)),
    );
  }

  scan() {
    const { total, cursor } = this.page;
    const last = this.rows.at(-1);
    if (cursor)
      return html`Looked at ${count(this.scanned)} of ${count(total)} jobs${last ? html`, back to ${time(last.created_ts, { day: true })} ${zone.name}` : nothing}.`;
    return this.state || this.q || this.task
      ? `All ${plural(total, "job")} looked at, ${count(this.rows.length)} shown.`
      : `${plural(this.rows.length, "job")}, that is all.`;
  }

  nothingFound() {
    const { total, cursor } = this.page;
    if (this.reading) return nothing;
    if (!this.state && !this.q && !this.task)
      return empty(
        "No job yet.",
        "Send one from here, or from a terminal:",
        command('jobwire submit chat "hello" --follow'),
      );
    const what = `${this.state ? `${word(this.state).toLowerCase()} job` : "job"}${this.q ? ` with “${this.q}” in its id or task` : ""}${this.task ? ` of the task ${this.task}` : ""}`;
    return empty(
      `No ${what}.`,
      cursor
        ? `Looked at ${count(this.scanned)} of ${count(total)} jobs.`
        : `Looked at all ${plural(total, "job")}.`,
      this.furtherButton("btn"),
      html`<a class="btn" href="#/jobs">Clear filter</a>`,
    );
  }

  // Counts that the server knows without a scan; unknown ones are blank.
  tabCount(name) {
    const row = app.overview?.systems.find((each) => each.system === "jobs");
    if (name === "") return this.page?.total;
    return row && { waiting: row.waiting, scheduled: row.delayed, running: row.running }[name];
  }

  tab = (name) => {
    const n = this.tabCount(name);
    return html`<a href=${this.href(this.q, { state: name })} aria-current=${name === this.state ? "true" : nothing}>${name ? html`<span class="st ${name}">${icon(name, "")}</span>${word(name)}` : "All"}${n == null ? nothing : html`<span class="n">${count(n)}</span>`}</a>`;
  };

  view() {
    return html`<div class="bar">${filterField(this, "Filter by task or id", "Task or id")}
        ${wireSwitch("streams")}${this.task ? html`<span class="tag">task ${this.task}</span><a class="link small" href=${this.href(this.q, { task: "" })}>all tasks</a>` : nothing}
        <span class="grow"></span>${this.held ? this.heldButton() : html`<span class="muted small wide">Newest first</span>`}</div>
      <nav class="tabs" aria-label="State">${Object.keys(FILTERS).map(this.tab)}</nav>
      ${refusalView(this.refusal)}${this.result ? html`<p class="small soft gap" role="status">${this.result}</p>` : nothing}
      ${!this.page ? nothing : this.rows.length ? html`${this.table()}${this.scanView(this.scan(), "newest")}` : this.nothingFound()}${this.pickBar(this.acts)}`;
  }
}

export const open = (route) => new Jobs(route);
