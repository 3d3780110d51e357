// Job: its life with real durations, live events, payload, result, and its keys on the wire.
import { html, nothing, icon, state, stateOf, meter, percentOf, copy, command, empty, ended, time, timeAgo } from "../ui.js";
import { app, announce, may, update } from "../store.js";
import { get, getJob } from "../api.js";
import { EventFollower } from "../events.js";
import { ask, submitSheet } from "../dialog.js";
import { cancelJob, runAgain } from "../acts.js";
import { count, duration, age, now, plural, shortId, shortWorker, zone } from "../format.js";
import { eventData, eventsView, facts, jsonTab, refusalView, sizeOf, stackView, tabs } from "../jobview.js";
import { go, jobLink } from "../router.js";
import { pollNow } from "../poll.js";
import { attemptsView, eventName, lifeline, lifeOf } from "../lifeline.js";
import { wireView } from "../wire.js";
import { takenBy } from "../fleet.js";

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
    this.wireStale = true;
  }

  async poll(rare) {
    if (this.gone && !rare) return;
    try {
      if (!this.job || !ended(this.job) || rare || this.jobStale) {
        this.jobStale = false;
        this.job = await getJob(this.id);
      }
      if (this.tab === "wire" && (this.wireStale || Date.now() - this.wireAt > 3500)) {
        this.wireStale = false;
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
      // The result comes with the job, not with the event; the keys change at the end.
      this.jobStale = this.wireStale = true;
      pollNow();
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
    return facts(rows);
  }

  tabs() {
    const { job } = this;
    return tabs([
      ["events", "Events", count(this.events.length)],
      ["payload", "Payload", sizeOf(job.payload)],
      ["result", job.status === "error" ? "Error" : "Result"],
      ["wire", "Wire", this.wire ? plural(this.wire.keys.length, "key") : ""],
    ], this.tab, (tab) => jobLink(this.wireName, this.id, { tab: tab === "events" ? "" : tab }));
  }

  eventsTab() {
    const follows = this.follower && !ended(this.job);
    const broken = this.follower?.state === "broken";
    const head = this.shown ? html`<span class="muted small">Paused; ${count(this.events.length - this.shown.length)} newer.</span>` : follows ? (broken ? state("scheduled", "Reconnecting") : state("running", "Live")) : nothing;
    return eventsView(this, {
      rows: folded(this.shown ?? this.events),
      head,
      first: this.events[0]?.ts ?? this.job.created_ts,
      name: (event) => eventName(event.type),
      by: (event) => event.step,
      data: (event, last) => (event.tokens ? html`<span class="muted">${plural(event.tokens, "token")}</span><br /><span class="tokens">${event.text}</span>${follows && last ? html`<span class="caret pulse"></span>` : nothing}` : eventData(event)),
    });
  }

  resultTab() {
    const { job } = this;
    if (job.status === "done") return jsonTab(this, job.result);
    if (job.status === "error" || job.status === "canceled") {
      const { code, message, ...more } = typeof job.error === "object" && job.error ? job.error : { message: String(job.error) };
      return html`<div class="gap"><p><b class="bold mono ${stateOf(job)}">${code ?? "error"}</b> <span class="soft">${message}</span></p>
        ${job.status === "error" ? html`<p class="muted small"><a class="link" href="#/failures">Others of this kind</a></p>` : nothing}</div>
        ${job.traceback ? stackView("Traceback", job.traceback) : nothing}
        ${more.partial !== undefined ? jsonTab(this, more.partial, "What it had done until then.") : nothing}`;
    }
    return html`<div class="empty"><h2>No result yet.</h2><p>${job.status === "running" ? "The job is running." : job.due_ts ? "The job waits for its time." : "The job waits for a worker."}</p></div>`;
  }

  tabView() {
    if (this.tab === "payload") return jsonTab(this, this.job.payload);
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
      ${refusalView(this.refusal)}
      ${noWorker && job.status === "queued" && !job.due_ts ? html`<div class="notice">${icon("warn")}<div><b class="bold">No worker takes jobs.</b> Start one:<div>${command("jobwire worker")}</div></div></div>` : nothing}
      <div class="job"><div>${lifeline(job, life, { noWorker, heard: this.follower?.state === "ended" })}${attemptsView(job, life)}${this.tabs()}${this.tabView()}</div>${this.rail()}</div>`;
  }
}

export const open = (route) => new JobScreen(route);
