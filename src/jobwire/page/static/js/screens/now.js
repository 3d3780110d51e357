// Now: one sentence in words, four numbers, a row per system, what has just ended.
import {
  html,
  nothing,
  icon,
  state,
  stateOf,
  health,
  number,
  command,
  ended,
  id,
  openRow,
  time,
  timeAgo,
} from "../ui.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { app, announce, may, update } from "../store.js";
import { get } from "../api.js";
import { age, clock, count, duration, now, plural, zone } from "../format.js";
import { jobLink, link } from "../router.js";
import { isUnread, placeOf, queueRows, takenBy, unread } from "../fleet.js";
import { bars, dataTable } from "../charts.js";
import { draw } from "../plot.js";

const LEDGER = 10;
const nameOf = (row) =>
  (row.system === "queues" || (row.system === "jobs" && row.name !== "jobs") ? "queue " : "") +
  row.name;
// One process may serve several rows: these are at least as many.
const workersOf = (rows) => Math.max(0, ...rows.map((row) => row.workers ?? 0));
const untouched = (rows) =>
  !rows.some(
    (row) => row.submitted || row.done || row.error || row.waiting || row.delayed || row.running,
  );
const sum = (rows, name) => rows.reduce((total, row) => total + (row[name] ?? 0), 0);
const oldestOf = (rows) =>
  rows
    .filter((row) => row.oldest_waiting_ms != null)
    .sort((a, b) => b.oldest_waiting_ms - a.oldest_waiting_ms)[0];

// The sentence, its second line, an icon, and what to do.
function verdict({ systems: rows, unavailable }, stored) {
  const down = unavailable[0];
  const failed = sum(rows, "error");
  const tail = failed
    ? ` ${count(failed)} failed in the last hour.`
    : " Nothing failed in the last hour.";
  if (down)
    return {
      icon: "warn",
      tone: "failed",
      title: `${down.system}: no answer from its server.`,
      text: `${down.detail}. See Workers for the fix.`,
    };
  const queues = queueRows(rows);
  const paused = queues.find((row) => row.paused && row.waiting);
  const [dead, ...dying] = queues
    .filter((row) => takenBy(row)[1] === "No worker")
    .sort((a, b) => (b.oldest_waiting_ms ?? 0) - (a.oldest_waiting_ms ?? 0));
  if (dead) {
    const others = dying.length
      ? `${dying
          .slice(0, 3)
          .map((row) => (isUnread(row) ? unread(row) : `${nameOf(row)}: no worker`))
          .join("; ")}${dying.length > 3 ? `; and ${count(dying.length - 3)} more` : ""}.`
      : paused
        ? `${nameOf(paused)} is paused.`
        : queues.length > 1
          ? "All other queues with jobs have a worker."
          : "Start one:";
    const title = isUnread(dead)
      ? unread(dead)
      : `${nameOf(dead)}: no worker, ${count(dead.running)} running`;
    return {
      icon: "warn",
      tone: "warn",
      title: `${title[0].toUpperCase()}${title.slice(1)}.`,
      text: `${others[0].toUpperCase()}${others.slice(1)}`,
      command: dead.name === "default" ? "jobwire worker" : "jobwire worker module:app",
    };
  }
  const late = rows.find((row) => takenBy(row)[1] === "Behind");
  if (late)
    return {
      icon: "behind",
      tone: "warn",
      title: `${nameOf(late)} is behind: ${count(late.waiting)} waiting.`,
      text: `The oldest has waited ${duration(late.oldest_waiting_ms)}; all ${plural(late.slots, "slot")} are in use.${tail}`,
    };
  if (paused)
    return {
      icon: "pause",
      tone: "warn",
      title: `${nameOf(paused)} is paused: ${count(paused.waiting)} waiting.`,
      text: `No worker starts them until it is resumed.${tail}`,
    };
  const workers = workersOf(rows);
  if (stored === 0 && untouched(rows)) {
    const free = workers
      ? `${plural(workers, "worker")} with ${plural(sum(rows, "slots"), "free slot")}. Send something:`
      : "No worker is running yet either. Send something, and start one with jobwire worker:";
    return {
      icon: "waiting",
      tone: "muted",
      title: "Quiet. No job yet.",
      text: free,
      command: 'jobwire submit chat "hello" --follow',
      offer: true,
    };
  }
  const [waiting, running] = [sum(rows, "waiting"), sum(rows, "running")];
  const suspended = sum(rows, "suspended");
  const asleep = suspended ? ` ${plural(suspended, "job")} suspended.` : "";
  if (!waiting && !running)
    return {
      icon: "ok",
      tone: "running",
      title: "Quiet. Nothing is waiting.",
      text: `${plural(workers, "worker")}, ${plural(sum(rows, "slots"), "free slot")}.${asleep}${tail}`,
    };
  const oldest = oldestOf(rows);
  return {
    icon: "ok",
    tone: "running",
    title: "Jobs are being picked up.",
    text: `${count(running)} running, ${count(waiting)} waiting${oldest ? `, the oldest for ${duration(oldest.oldest_waiting_ms)}` : ""}.${asleep}${tail}`,
  };
}

const verdictView = (sentence, self) =>
  html`<div class="verdict">${icon(sentence.icon, sentence.tone)}<div>
  <h2>${sentence.title}</h2><p>${sentence.text}</p>
  ${
    sentence.command
      ? html`<div class="row wrap gap">${command(sentence.command)}
    ${sentence.offer && may("submit") ? html`<button class="btn primary" @click=${self.offer}>Do it for me</button>` : nothing}</div>`
      : nothing
  }
  ${self.refusal ? html`<p class="failed" role="alert">${self.refusal}</p>` : nothing}
</div></div>`;

function figures(rows, kinds) {
  const oldest = oldestOf(rows);
  const late = oldest && takenBy(oldest)[0] !== "ok";
  const beats = rows.map((row) => row.heartbeat_age_ms).filter((ms) => ms != null);
  const minutes =
    rows[0]?.ended_by_minute.map((_, i) =>
      rows.reduce((n, row) => n + row.ended_by_minute[i], 0),
    ) ?? [];
  const failed = sum(rows, "error");
  const first = kinds?.[0];
  const workers = workersOf(rows);
  const slotted = rows.filter((row) => row.slots != null);
  // The jobs of queues use slots too, of workers of any program.
  const shared = rows.some((row) => row.system === "queues" && row.running);
  return html`<dl class="figures">
    <div><dt>Workers</dt><dd class="n">${count(workers)} ${sum(slotted, "slots") ? html`<small>${shared ? "" : `${count(sum(slotted, "running"))} of `}${plural(sum(slotted, "slots"), "slot")}${shared ? "" : " in use"}</small>` : nothing}</dd>
      <dd class="w">${beats.length ? `Last heartbeat ${age(Math.min(...beats))} ago` : "None is running"}</dd></div>
    <div><dt>Oldest waiting</dt><dd class="n ${oldest ? (late ? "warn" : "") : "muted"}">${oldest ? duration(oldest.oldest_waiting_ms) : "none"}</dd>
      <dd class="w">${oldest ? html`<a class="link" href=${placeOf(oldest, { state: "waiting" })}>${count(sum(rows, "waiting"))} waiting</a>` : "Nothing is waiting"}</dd></div>
    <div><dt>Failed, last hour</dt><dd class="n ${failed ? "failed" : ""}">${count(failed)}</dd>
      <dd class="w cut">${first ? html`<a class="link" href="#/failures">${count(first.count)} of one kind: <code>${first.code}</code></a>` : "Nothing failed"}</dd></div>
    <div><dt>Ended, last full minute</dt><dd class="n">${count(minutes.at(-2) ?? 0)}</dd>
      <dd class="w">${bars(minutes.slice(-40), [], { width: 150, height: 16, label: "ended jobs by minute" })}</dd></div>
  </dl>`;
}

const ownQueuesLink = link(["jobs"], { wire: "bullmq" });

const systemRow = (row) => {
  // A system with several queues is as well as the worst of them.
  const worst = row.queues?.find((each) => takenBy(each)[1] === "No worker") ?? row;
  const [shape, text] = takenBy(worst);
  const none = text === "No worker";
  return html`<tr @click=${openRow}>
    <td class="cut ${row.of ? "sub" : ""}"><a href=${row.of ? ownQueuesLink : placeOf(row)} class="bold">${row.name}</a> <span class="muted">${row.of || row.wire === row.name ? "" : row.wire}</span></td>
    <td>${health(shape, text)}</td>
    <td class="right" data-label="Waiting">${number(row.waiting)}${row.delayed ? html`<span class="muted"> and ${count(row.delayed)} delayed</span>` : nothing}</td>
    <td class="right ${none ? "warn bold" : ""}" data-label="Oldest">${duration(row.oldest_waiting_ms)}</td>
    <td class="right" data-label="Running">${row.workers === 0 ? html`<span class=${none ? "warn bold" : "muted"}>no slots</span>` : row.slots == null ? number(row.running) : html`${row.running} <span class="muted">/ ${row.slots}</span>`}</td>
    <td class="right hide">${row.ended_by_minute ? html`<span class="row nowrap">${bars(row.ended_by_minute.slice(-30), row.failed_by_minute.slice(-30), { label: "ended jobs by minute, failed ones in red" })}<span class="grow right">${number(row.ended_by_minute.at(-2))}</span></span>` : nothing}</td>
    <td class="right" data-label="Failed">${row.error == null ? nothing : row.error ? html`<span class="failed bold">${count(row.error)}</span>` : number(0)}</td>
    <td class="right hide">${duration(row.duration_ms?.p90)}</td></tr>`;
};

// Each system with its queues below it, if it has more than one.
const withQueues = (rows) =>
  rows.flatMap((row) =>
    row.queues?.length > 1
      ? [row, ...queueRows([row]).map((queue) => ({ ...queue, of: row.name }))]
      : [row],
  );

const ledgerRow = (job, fresh) =>
  html`<tr class=${fresh ? "fresh" : ""} @click=${openRow}>
  <td>${state(stateOf(job))}</td><td class="task cut"><a href=${jobLink("streams", job.job_id)}>${job.task}</a></td>
  <td class="id">${id(job.job_id)}</td>
  <td class="right hide">${job.started_ts ? duration(job.started_ts - job.created_ts) : ""}</td>
  <td class="right span">${job.started_ts ? duration(job.updated_ts - job.started_ts) : ""}</td>
  <td class="right muted at">${time(job.updated_ts)}</td></tr>`;

function ledger(self) {
  if (!self.settled.length)
    return html`<p class="muted small">${self.scanned ? `None of the newest ${plural(self.scanned, "job")} has ended yet.` : "Nothing has ended yet."}</p>`;
  return html`<table class="hit jobs"><thead><tr><th>State</th><th>Task</th><th>Id</th><th class="right">Waited</th><th class="right">Ran</th><th class="right">At, ${zone.name}</th></tr></thead>
    <tbody>${repeat(
      self.settled,
      (job) => job.job_id,
      (job) => ledgerRow(job, self.fresh.has(job.job_id)),
    )}</tbody></table>`;
}

const kindsView = (kinds) =>
  kinds?.length
    ? html`<ul class="kinds">${kinds.slice(0, 5).map(
        (kind) =>
          html`<li><span class="c">${count(kind.count)}</span>
      <span class="cut"><a href="#/failures" class="bold mono small">${kind.code || "error"}</a> <span class="muted small">${kind.system === "queues" ? `${kind.name}: ` : ""}${kind.task}</span><br /><span class="soft small">${kind.message}</span></span>
      <span class="muted tiny nowrap">${timeAgo(kind.last_ts)}</span></li>`,
      )}</ul>`
    : html`<p class="muted small">Nothing failed in the last hour.</p>`;

class Now {
  settled = [];
  fresh = new Set();
  scanned = 0;
  stored = null;
  title = () => "Now";

  async poll(rare) {
    // The list is read again when a job was submitted or has ended.
    const row = app.overview?.systems.find((each) => each.system === "jobs");
    const seen = row && [row.submitted, row.done, row.error, row.canceled, row.running].join();
    if (this.stored !== null && !rare && seen && seen === this.seen) return;
    this.seen = seen;
    const page = await get("/v1/jobs", { limit: 24 }).catch((problem) => {
      if (problem.status === 404 || problem.status === 503) return null;
      throw problem;
    });
    if (!page) return;
    const known = new Set(this.settled.map((job) => job.job_id));
    const first = this.stored === null;
    this.settled = page.jobs
      .filter(ended)
      .sort((a, b) => b.updated_ts - a.updated_ts)
      .slice(0, LEDGER);
    this.fresh = new Set(
      first ? [] : this.settled.filter((job) => !known.has(job.job_id)).map((job) => job.job_id),
    );
    this.scanned = page.scanned;
    this.stored = page.total;
  }

  offer = async () => {
    try {
      await (await import("../submit.js")).submitExample("chat");
    } catch (problem) {
      this.refusal = problem.message;
      update();
    }
  };

  view() {
    if (!app.overview) return nothing;
    const { systems: rows } = app.overview;
    const sentence = verdict(app.overview, this.stored);
    announce(sentence.title);
    const quiet = this.stored === 0 && untouched(rows);
    const leftOut = app.overview.left_out ?? 0;
    return html`${verdictView(sentence, this)}${figures(rows, app.failed?.failures)}
      ${
        quiet
          ? nothing
          : html`<section><header><h2>Systems</h2></header>
        <table class="hit systems"><thead><tr><th>System</th><th>Health</th><th class="right">Waiting</th><th class="right">Oldest</th><th class="right">Running / slots</th><th>Ended per minute, 30 min</th><th class="right">Failed, 1 h</th><th class="right">Run p90</th></tr></thead>
        <tbody>${repeat(withQueues(rows), (row) => `${row.system} ${row.name} ${row.of ?? ""}`, systemRow)}</tbody></table>
        ${leftOut ? html`<p class="muted small foot-note">${plural(leftOut, "further queue")} with fewer jobs. <a class="link" href=${link(["jobs"], { wire: "bullmq" })}>All queues</a></p>` : nothing}</section>
      <section><header><h2>Last hour</h2><span class="muted small">ended per minute, <span class="failed">failed</span></span></header>
        <div class="plot" id="hour" role="img" aria-label="Ended and failed jobs by minute, the table below has the numbers"></div>
        ${dataTable(
          "As a table",
          [`Minute, ${zone.name}`, "Ended", "Failed"],
          this.minutes().map(([ts, n, bad]) => [
            clock(ts * 1000).slice(0, 5),
            count(n),
            count(bad),
          ]),
        )}</section>
      <div class="two">${this.stored === null ? nothing : html`<section><header><h2>Just ended</h2><span class="grow"></span><a class="link small" href="#/jobs">All jobs</a></header>${ledger(this)}</section>`}
        <section><header><h2>What fails</h2><span class="grow"></span><a class="link small" href="#/failures">By kind, 24 h</a></header>${kindsView(app.failed?.failures)}</section></div>`
      }`;
  }

  // Minutes with the numbers of all systems: [time, ended, failed].
  minutes() {
    const rows = app.overview?.systems ?? [];
    const length = rows[0]?.ended_by_minute.length ?? 0;
    const last = Math.floor(now() / 60000) * 60;
    return Array.from({ length }, (_, i) => [
      last - (length - 1 - i) * 60,
      rows.reduce((n, row) => n + row.ended_by_minute[i], 0),
      rows.reduce((n, row) => n + row.failed_by_minute[i], 0),
    ]);
  }

  drawn() {
    const element = document.getElementById("hour");
    const minutes = this.minutes();
    if (!element || !minutes.length) return;
    const data = [0, 1, 2].map((at) => minutes.map((minute) => minute[at]));
    draw(element, data, [
      ["Ended", "--running"],
      ["Failed", "--failed"],
    ]);
  }
}

export const open = () => new Now();
