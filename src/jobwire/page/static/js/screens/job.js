// Job: its life with real durations, live events, payload, result, and its keys on the wire.
import {
  html,
  nothing,
  icon,
  state,
  stateOf,
  percentOf,
  command,
  empty,
  ended,
  time,
  timeAgo,
} from "../ui.js";
import { app, announce, may } from "../store.js";
import { getJob } from "../api.js";
import { EventFollower } from "../events.js";
import { ask, submitSheet } from "../dialog.js";
import { cancelJob, runAgain, sendSignal } from "../acts.js";
import { count, duration, age, now, plural, shortId, shortWorker, zone } from "../format.js";
import { JobScreen, eventData, jsonPart, sizeOf } from "../jobview.js";
import { go, jobLink } from "../router.js";
import { pollNow } from "../poll.js";
import { eventName, waitText } from "../lifeline.js";
import { isUnread, unread } from "../fleet.js";

// Tokens that follow each other become one row with their text.
function folded(events) {
  const rows = [];
  for (const event of events) {
    const last = rows.at(-1);
    const text =
      event.type === "token"
        ? (event.data?.text ?? (typeof event.data === "string" ? event.data : null))
        : null;
    if (text !== null && last?.tokens) {
      last.tokens += 1;
      last.text += text;
    } else rows.push(text !== null ? { ...event, tokens: 1, text } : event);
  }
  return rows;
}

class StreamJob extends JobScreen {
  tabNames = ["events", "payload", "result", "wire"];
  get failed() {
    return this.job.status === "error";
  }

  constructor(route) {
    super();
    [, this.wireName, this.id] = route.parts;
    this.path = `/v1/jobs/${encodeURIComponent(this.id)}`;
    this.changed(route);
  }

  title = () =>
    html`<a href="#/jobs">Jobs</a><span class="sep">/</span>${this.job?.task ?? shortId(this.id)}`;
  get label() {
    return this.job && `${this.job.task} ${shortId(this.id)}`;
  }
  href = (query) => jobLink(this.wireName, this.id, query);
  get ended() {
    return !!this.job && ended(this.job);
  }

  readJob = () => getJob(this.id);
  // A job that cannot be read (502) is not read again and again.
  isGone = ({ status }) => status === 404 || status === 502;
  newFollower = () =>
    new EventFollower(`${this.path}/events`, this.heard, this.gap, this.takenBack);

  took(event) {
    if (["done", "error", "canceled"].includes(event.type)) {
      announce(`The job is ${event.type === "error" ? "failed" : event.type}.`);
      // The result comes with the job, not with the event; the keys change at the end.
      this.stale = true;
      pollNow();
    } else if (event.type === "progress" && this.job)
      this.job = { ...this.job, progress: event.data };
    else if (event.type === "running" && this.job?.status === "queued")
      this.job = { ...this.job, status: "running", due_ts: null, waits_for: null };
    else if (event.type === "suspended" && this.job && !this.ended)
      this.job = {
        ...this.job,
        status: "queued",
        due_ts: event.data?.until,
        waits_for: event.data,
      };
  }

  cancel = () =>
    ask(
      "Cancel this job?",
      this.job.status === "running"
        ? "Its worker is asked to stop it. What it has done so far is not undone."
        : "It has not started; it ends at once.",
      this.attempt(() => cancelJob(this.id)),
      { yes: "Cancel job", no: "Leave it", danger: true },
    );

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
      ${this.ended ? nothing : html`<button class="btn danger" ?disabled=${!!job.cancel_ts} @click=${this.cancel}>${job.cancel_ts ? "Canceling…" : "Cancel job"}</button>`}</div>`;
  }

  head() {
    const { job } = this;
    const of = job.max_attempts ? ` of ${job.max_attempts}` : "";
    return this.headOf({
      title: job.task,
      word: state(stateOf(job)),
      attempts:
        job.status === "error"
          ? `after ${plural(job.attempt, "attempt")}`
          : job.attempt > 1 || of
            ? `attempt ${job.attempt}${of}`
            : "",
      percent: job.status === "running" ? percentOf(job.progress) : null,
      message: job.progress?.message,
      id: job.job_id,
    });
  }

  facts() {
    const { job } = this;
    const left = job.updated_ts + job.ttl_s * 1000 - now();
    const ran = job.started_ts ? now() - job.started_ts : 0;
    return [
      ["System", html`jobs <span class="muted">${this.wireName}</span>`],
      job.queue && ["Queue", job.queue],
      job.worker && [
        this.ended ? "Last worker" : "Worker",
        html`<a class="link" href="#/workers">${shortWorker(job.worker)}</a>`,
      ],
      job.timeout_s && [
        "Time limit",
        html`${duration(job.timeout_s * 1000)}${job.status === "running" ? html`, ${duration(job.timeout_s * 1000 - ran)} left` : nothing}`,
      ],
      [
        "Submitted",
        html`${time(job.created_ts, { day: true })} ${zone.name}<br /><span class="muted">${timeAgo(job.created_ts)}</span>`,
      ],
      [
        "Expires",
        html`in ${age(left)} <span class="muted">${this.ended ? "" : "if nothing changes"}</span>`,
      ],
      ["Attempt", `${job.attempt}${job.max_attempts ? ` of ${job.max_attempts}` : ""}`],
      job.cancel_ts && ["Cancel asked", time(job.cancel_ts)],
      job.retry_of && [
        "Run again of",
        html`<a class="link mono" href=${jobLink(this.wireName, job.retry_of)}>${shortId(job.retry_of)}</a>`,
      ],
      job.parent && [
        "Child of",
        html`<a class="link mono" href=${jobLink(this.wireName, job.parent.job_id)}>${shortId(job.parent.job_id)}</a>`,
      ],
      job.children && [
        "Children",
        html`${job.children.done} of ${job.children.total} done
          <ul class="children">${job.children.first.map((child) => html`<li><a class="link mono" href=${jobLink(this.wireName, child.job_id)}>${child.name}</a> <span class="muted">${child.status ?? "open"}</span></li>`)}</ul>`,
      ],
      job.failure_of && [
        "Failure of",
        html`<a class="link mono" href=${jobLink(this.wireName, job.failure_of)}>${shortId(job.failure_of)}</a>`,
      ],
      job.on_failure && [
        "Followed by",
        html`<a class="link mono" href=${jobLink(this.wireName, job.on_failure)}>${shortId(job.on_failure)}</a>`,
      ],
    ];
  }

  tabs = () => [
    ["events", "Events", count(this.events.length)],
    ["payload", "Payload", sizeOf(this.job.payload)],
    ["result", this.job.status === "error" ? "Error" : "Result"],
    ["wire", "Wire", this.wire ? plural(this.wire.keys.length, "key") : ""],
  ];

  tabView() {
    if (this.tab === "payload") return this.jsonView(this.job.payload);
    if (this.tab === "result") return this.resultTab();
    const tokens = (event, last) =>
      html`<span class="muted">${plural(event.tokens, "token")}</span><br /><span class="tokens">${event.text}</span>${this.follows && last ? html`<span class="caret pulse"></span>` : nothing}`;
    return this.eventsView(folded(this.shown ?? this.events), {
      first: this.events[0]?.ts ?? this.job.created_ts,
      name: (event) => eventName(event.type),
      by: (event) => event.step,
      data: (event, last) => (event.tokens ? tokens(event, last) : eventData(event)),
    });
  }

  resultTab() {
    const { job } = this;
    if (job.status === "done") return this.jsonView(job.result);
    if (!this.ended) return this.noResult(job);
    const { code, message, ...more } =
      typeof job.error === "object" && job.error ? job.error : { message: String(job.error) };
    const raised = job.exception_type
      ? `${job.exception_type}: ${job.exception_message ?? ""}`.replace(/[: ]+$/, "")
      : "";
    return html`<div class="gap"><p><b class="bold mono ${stateOf(job)}">${code ?? "error"}</b> <span class="soft">${message}</span></p>
      ${raised ? html`<p class="mono">${raised}</p>` : nothing}
      ${job.status === "error" ? html`<p class="muted small"><a class="link" href="#/failures">Others of this kind</a></p>` : nothing}</div>
      ${job.traceback ? jsonPart(({ stackView }) => stackView("Traceback", job.traceback)) : nothing}
      ${more.partial !== undefined ? this.jsonView(more.partial, "What it had done until then.") : nothing}`;
  }

  goneView() {
    const { job } = this;
    const all = html`<a class="btn" href="#/jobs">All jobs</a>`;
    if (this.gone.status === 502) return empty("This job cannot be read.", this.gone.message, all);
    if (job)
      return empty(
        "This job has expired.",
        `Its last state was ${stateOf(job)}. A job is removed ${duration(job.ttl_s * 1000)} after its last change.`,
        all,
      );
    return empty(
      "No such job.",
      "A job is removed when its time to live is over, by default 24 h after its last change. Another tenant's job is not shown.",
      all,
      command(`jobwire job ${this.id.replace(/[^\w.-]/g, "")}`),
    );
  }

  shape = () => this.job;
  life = () => this.events;

  get noWorker() {
    return !!this.queueRow && !this.queueRow.paused && this.queueRow.workers === 0;
  }

  // The queue in which the job waits; of a gateway without queues, the whole system.
  get queueRow() {
    const row = app.overview?.systems.find((each) => each.system === "jobs");
    return row?.queues?.find((each) => each.name === (this.job?.queue || "default")) ?? row;
  }

  signal = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("value").trim();
    let value = text;
    try {
      value = text ? JSON.parse(text) : null;
    } catch {
      // Any other text is sent as it is.
    }
    return this.attempt(() => sendSignal(this.id, this.job.waits_for.name, value))();
  };

  // What a suspended job waits for; a signal can be sent from here.
  waitView(wait) {
    const form = html`<form class="row" @submit=${this.signal}>
      <input name="value" autocomplete="off" aria-label="Value of the signal" placeholder='{"by": "ann"}' />
      <button class="btn">Send signal</button></form>`;
    return html`<div class="notice">${icon("scheduled")}<div><b class="bold">Waiting for ${waitText(wait)}</b> until ${time(wait.until, { day: true })}.
      ${wait.for === "signal" && may("signal") ? form : nothing}</div></div>`;
  }

  notices() {
    const { job } = this;
    if (job.waits_for) return this.waitView(job.waits_for);
    if (job.status !== "queued" || job.due_ts) return nothing;
    if (this.queueRow?.paused)
      return html`<div class="notice">${icon("pause")}<div><b class="bold">The queue ${job.queue} is paused.</b> The job waits until it is resumed.</div></div>`;
    if (!this.noWorker) return nothing;
    const title = isUnread(this.queueRow)
      ? unread(this.queueRow)
      : `queue ${this.queueRow.name}: no worker`;
    return html`<div class="notice">${icon("warn")}<div><b class="bold">${title[0].toUpperCase() + title.slice(1)}.</b> Start one:<div>${command(this.queueRow.name === "default" ? "jobwire worker" : "jobwire worker module:app")}</div></div></div>`;
  }
}

export const open = (route) => new StreamJob(route);
