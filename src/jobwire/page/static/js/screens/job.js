// Job: its life with real durations, live events, payload, result, and its keys on the wire.
import { html, nothing, icon, state, stateOf, meter, percentOf, copy, copyButton, command, empty, ended, time, timeAgo } from "../ui.js";
import { app, announce, may, update } from "../store.js";
import { get, getJob } from "../api.js";
import { EventFollower } from "../events.js";
import { ask, submitSheet } from "../dialog.js";
import { cancelJob, runAgain } from "../acts.js";
import { bytes, count, duration, age, now, plural, shortId, shortWorker, size, zone } from "../format.js";
import { compact, dotted, hasSecrets, pretty, view as jsonView } from "../json.js";
import { go, jobLink } from "../router.js";
import { attemptsView, eventName, lifeline, lifeOf } from "../lifeline.js";
import { wireView } from "../wire.js";
import { takenBy } from "../fleet.js";

const MOST_EVENTS = 200;
const TABS = ["events", "payload", "result", "wire"];

// Tokens that follow each other become one row with their text.
function folded(events) {
  const rows = [];
  for (const event of events) {
    const last = rows.at(-1);
    const text = event.type === "token" ? (event.data?.text ?? (typeof event.data === "string" ? event.data : null)) : null;
    if (text !== null && last?.tokens) {
      last.tokens += 1;
      last.text += text;
    } else rows.push(text !== null ? { ...event, tokens: 1, text } : event);
  }
  return rows;
}

class JobScreen {
  job = null;
  gone = null;
  events = [];
  shown = null; // the events of a paused list
  wire = null;
  showSecrets = false;
  all = false;

  constructor(route) {
    [, this.wireName, this.id] = route.parts;
    this.path = `/v1/jobs/${encodeURIComponent(this.id)}`;
    this.changed(route);
  }

  title = () => html`<a href="#/jobs">Jobs</a><span class="sep">/</span>${this.job?.task ?? shortId(this.id)}`;

  changed(route) {
    const tab = route.query.get("tab");
    this.tab = TABS.includes(tab) ? tab : "events";
    this.wireAt = 0;
  }

  async poll(rare) {
    if (this.gone && !rare) return;
    try {
      if (!this.job || !ended(this.job) || rare) this.job = await getJob(this.id);
      if (this.tab === "wire" && Date.now() - this.wireAt > 3500) {
        this.wire = await get(`${this.path}/wire`);
        this.wireAt = Date.now();
      }
      this.gone = null;
    } catch (problem) {
      if (problem.status !== 404 && problem.status !== 502) throw problem;
      this.gone = problem;
      this.follower?.close();
      return;
    }
    this.follower ??= new EventFollower(`${this.path}/events`, this.heard, () => this.heard({ type: "gap", ts: now(), step: "", data: "some events are missing here" }));
  }

  heard = (event) => {
    this.events.push(event);
    if (["done", "error", "canceled"].includes(event.type)) {
      announce(`The job is ${event.type === "error" ? "failed" : event.type}.`);
      // The result comes with the job, not with the event.
      getJob(this.id).then((job) => (this.job = job), () => {}).finally(update);
    } else if (event.type === "progress" && this.job) this.job = { ...this.job, progress: event.data };
    else if (event.type === "running" && this.job?.status === "queued") this.job = { ...this.job, status: "running", due_ts: null };
    update();
  };

  paused(on) {
    this.shown = on ? [...this.events] : null;
  }

  close() {
    this.follower?.close();
  }

  attempt = (act) => async () => {
    this.refusal = "";
    try {
      await act();
    } catch (problem) {
      this.refusal = problem.message;
    }
    update();
  };

  cancel = () =>
    ask("Cancel this job?", this.job.status === "running" ? "Its worker is asked to stop it. What it has done so far is not undone." : "It has not started; it ends at once.", this.attempt(async () => {
      await cancelJob(this.id);
      this.job = await getJob(this.id);
    }), { yes: "Cancel job", no: "Leave it", danger: true });

  // The reader is taken to the new job.
  again = this.attempt(async () => go(jobLink(this.wireName, (await runAgain(this.id)).job_id)));
  edit = () => submitSheet({ task: this.job.task, payload: this.job.payload });

  acts() {
    const { job } = this;
    if (!may("submit")) return nothing;
    const retryable = job.status === "error" || job.status === "canceled";
    return html`<div class="row wrap acts">
      <button class="btn" @click=${this.edit}>${retryable ? "Run with edits…" : html`${icon("again")}Run a copy…`}</button>
      ${retryable ? html`<button class="btn primary" @click=${this.again}>${icon("again")}Run again</button>` : nothing}
      ${ended(job) ? nothing : html`<button class="btn danger" ?disabled=${!!job.cancel_ts} @click=${this.cancel}>${job.cancel_ts ? "Canceling…" : "Cancel job"}</button>`}</div>`;
  }

  head() {
    const { job } = this;
    const percent = percentOf(job.progress);
    const of = job.max_attempts ? ` of ${job.max_attempts}` : "";
    const attempts = job.status === "error" ? `after ${plural(job.attempt, "attempt")}` : job.attempt > 1 || of ? `attempt ${job.attempt}${of}` : "";
    return html`<div class="jobhead"><div class="grow">
      <div class="row wrap"><h2>${job.task}</h2>${state(stateOf(job))}<span class="muted small">${attempts}</span>
        ${job.status === "running" && percent !== null ? meter(percent, job.progress.message) : nothing}</div>
      <div class="row muted small"><code class="cut">${job.job_id}</code>${copy(job.job_id, "id")}</div></div>${this.acts()}</div>`;
  }

  rail() {
    const { job } = this;
    const left = job.updated_ts + job.ttl_s * 1000 - now();
    const ran = job.started_ts ? now() - job.started_ts : 0;
    const rows = [
      ["System", html`jobs <span class="muted">${this.wireName}</span>`],
      job.queue && ["Queue", job.queue],
      job.worker && [ended(job) ? "Last worker" : "Worker", html`<a class="link" href="#/workers">${shortWorker(job.worker)}</a>`],
      job.timeout_s && ["Time limit", html`${duration(job.timeout_s * 1000)}${job.status === "running" ? html`, ${duration(job.timeout_s * 1000 - ran)} left` : nothing}`],
      ["Submitted", html`${time(job.created_ts, { day: true })} ${zone.name}<br /><span class="muted">${timeAgo(job.created_ts)}</span>`],
      ["Expires", html`in ${age(left)} <span class="muted">${ended(job) ? "" : "if nothing changes"}</span>`],
      ["Attempt", `${job.attempt}${job.max_attempts ? ` of ${job.max_attempts}` : ""}`],
      job.cancel_ts && ["Cancel asked", time(job.cancel_ts)],
      job.retry_of && ["Run again of", html`<a class="link mono" href=${jobLink(this.wireName, job.retry_of)}>${shortId(job.retry_of)}</a>`],
    ];
    return html`<aside class="rail" aria-label="Facts"><dl>${rows.filter(Boolean).map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl></aside>`;
  }

  tabs() {
    const { job } = this;
    const names = { events: ["Events", count(this.events.length)], payload: ["Payload", bytes(size(compact(job.payload)))], result: [job.status === "error" ? "Error" : "Result", ""], wire: ["Wire", this.wire ? plural(this.wire.keys.length, "key") : ""] };
    return html`<nav class="tabs jobtabs" aria-label="Job">${TABS.map((name) => html`<a href=${jobLink(this.wireName, this.id, { tab: name === "events" ? "" : name })} aria-current=${this.tab === name ? "true" : nothing}>${names[name][0]}${names[name][1] ? html`<span class="n">${names[name][1]}</span>` : nothing}</a>`)}</nav>`;
  }

  eventsTab() {
    const rows = folded(this.shown ?? this.events);
    const list = this.all ? rows : rows.slice(-MOST_EVENTS);
    const follows = this.follower && !ended(this.job);
    const broken = this.follower?.state === "broken";
    const first = this.events[0]?.ts ?? this.job.created_ts;
    return html`<div class="tabhead">${this.shown ? html`<span class="muted small">Paused; ${count(this.events.length - this.shown.length)} newer.</span>` : follows ? (broken ? state("scheduled", "Reconnecting") : state("running", "Live")) : nothing}
      <span class="muted small grow">${rows.length > list.length ? html`The last ${list.length} rows. ` : nothing}Oldest first, each event once.</span>
      ${rows.length > list.length ? html`<button class="btn slim" @click=${() => { this.all = true; update(); }}>Show ${count(rows.length)}</button>` : nothing}
      ${copyButton(JSON.stringify(this.events.map(({ id, type, ts, step, data }) => ({ id, type, ts, step, data }))))}</div>
      <table class="events"><thead class="vh"><tr><th>After</th><th>Type</th><th>Written by</th><th>Data</th></tr></thead><tbody>
      ${list.map((event, i) => html`<tr><td class="right muted">${event.ts === first ? "0" : `+${duration(event.ts - first)}`}</td><td>${eventName(event.type)}</td><td class="muted mono wide">${event.step}</td>
        <td class="data">${event.tokens ? html`<span class="muted">${plural(event.tokens, "token")}</span><br /><span class="tokens">${event.text}</span>${follows && i === list.length - 1 ? html`<span class="caret pulse"></span>` : nothing}` : html`<code class="soft">${dotted(typeof event.data === "string" ? event.data : compact(event.exact ?? event.data))}</code>`}</td></tr>`)}</tbody></table>`;
  }

  json(value, label) {
    const secrets = hasSecrets(value);
    return html`<div class="tabhead"><span class="muted small grow">${label}${secrets && !this.showSecrets ? " Secrets are dotted." : ""}</span>
      ${secrets ? html`<button class="btn slim" aria-pressed=${this.showSecrets} @click=${() => { this.showSecrets = !this.showSecrets; update(); }}>${this.showSecrets ? "Hide secrets" : "Show secrets"}</button>` : nothing}
      ${copyButton(pretty(value))}</div>${jsonView(value, { hide: !this.showSecrets })}`;
  }

  resultTab() {
    const { job } = this;
    if (job.status === "done") return this.json(job.result, `${bytes(size(compact(job.result)))}. Numbers are shown digit for digit.`);
    if (job.status === "error" || job.status === "canceled") {
      const { code, message, ...more } = typeof job.error === "object" && job.error ? job.error : { message: String(job.error) };
      return html`<div class="gap"><p><b class="bold mono ${stateOf(job)}">${code ?? "error"}</b> <span class="soft">${message}</span></p>
        ${job.status === "error" ? html`<p class="muted small"><a class="link" href="#/failures">Others of this kind</a></p>` : nothing}</div>
        ${job.traceback ? html`<details class="key" open><summary>${icon("chevron")}Traceback</summary><pre tabindex="0">${job.traceback}</pre><p class="gap">${copyButton(job.traceback, "Copy traceback")}</p></details>` : nothing}
        ${more.partial !== undefined ? this.json(more.partial, "What it had done until then.") : nothing}`;
    }
    return html`<div class="empty"><h2>No result yet.</h2><p>${job.status === "running" ? "The job is running." : job.due_ts ? "The job waits for its time." : "The job waits for a worker."}</p></div>`;
  }

  tabView() {
    if (this.tab === "payload") return this.json(this.job.payload, `${bytes(size(compact(this.job.payload)))}. Numbers are shown digit for digit.`);
    if (this.tab === "result") return this.resultTab();
    return this.tab === "wire" ? wireView(this.wire, this.wireAt) : this.eventsTab();
  }

  goneView() {
    const { job } = this;
    if (this.gone.status === 502) return empty("This job cannot be read.", this.gone.message, html`<a class="btn" href="#/jobs">All jobs</a>`);
    if (job) return empty("This job has expired.", `Its last state was ${stateOf(job)}. A job is removed ${duration(job.ttl_s * 1000)} after its last change.`, html`<a class="btn" href="#/jobs">All jobs</a>`);
    return empty("No such job.", "A job is removed when its time to live is over, by default 24 h after its last change. Another tenant's job is not shown.", html`<a class="btn" href="#/jobs">All jobs</a>`, command(`jobwire job ${this.id.replace(/[^\w.-]/g, "")}`));
  }

  view() {
    if (this.gone) return this.goneView();
    if (!this.job) return nothing;
    const { job } = this;
    const life = lifeOf(job, this.events);
    const row = app.overview?.systems.find((each) => each.system === "jobs");
    const noWorker = !!row && takenBy(row)[1] === "No worker";
    return html`${this.head()}
      ${this.refusal ? html`<div class="notice bad" role="alert">${icon("warn")}<div>${this.refusal}</div></div>` : nothing}
      ${noWorker && job.status === "queued" && !job.due_ts ? html`<div class="notice">${icon("warn")}<div><b class="bold">No worker takes jobs.</b> Start one:<div>${command("jobwire worker")}</div></div></div>` : nothing}
      <div class="job"><div>${lifeline(job, life, { noWorker, heard: this.follower?.state === "ended" })}${attemptsView(job, life)}${this.tabs()}${this.tabView()}</div>${this.rail()}</div>`;
  }
}

export const open = (route) => new JobScreen(route);
