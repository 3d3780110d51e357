// Queues: all queues that the reader may see, who takes their jobs, pause and resume.
import {
  html,
  nothing,
  health,
  number,
  command,
  empty,
  openRow,
  refusalView,
  time,
} from "../ui.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { app, may, serves } from "../store.js";
import { get, post } from "../api.js";
import { addSheet } from "../dialog.js";
import { count, duration, plural } from "../format.js";
import { pollNow } from "../poll.js";
import { takenBy } from "../fleet.js";
import { filterField, wireSwitch } from "../bar.js";
import { askPause } from "../queue_acts.js";
import { WIRE, queueJobLink, queueLink, queuePath, stateView, waitingIn } from "../queues.js";

const MOST = 200;
const loadOwn = () => import("../own_queues.js");
const MANY = 100; // queues: they are read less often

// The health of a queue, as takenBy shows that of a system.
function healthOf(queue) {
  const row = { ...queue, waiting: waitingIn(queue), running: queue.counts.active };
  if (queue.workers == null && !queue.paused)
    return health("waiting", row.waiting ? "Unknown" : "Quiet");
  return health(...takenBy(row));
}

class Queues {
  queues = null;
  found = null;
  typedText = ""; // in the filter; the URL follows a moment later
  title = () => "Jobs";

  constructor(route) {
    this.changed(route);
  }

  changed(route) {
    const q = route.query.get("q") ?? "";
    if (q !== this.q) this.found = null;
    this.q = q;
    if (this.typedText.trim() !== q) this.typedText = q;
  }

  async poll(rare) {
    if (!this.queues || this.queues.length <= MANY || rare || this.stale) {
      this.stale = false;
      if (serves("jobs")) await (this.own ??= (await loadOwn()).open(this)).poll();
      this.queues = serves("queues")
        ? (await get("/v1/queues")).queues.sort((a, b) => a.name.localeCompare(b.name))
        : [];
    }
    if (!this.q || (this.found && !rare)) return;
    const { q } = this;
    const { found } = await get("/v1/search", { q }).catch((problem) => {
      if (problem.status === 404) return { found: [] };
      throw problem;
    });
    if (q === this.q) this.found = found.filter((each) => each.wire === WIRE);
  }

  act(queue, verb) {
    return async () => {
      try {
        await post(queuePath(queue.name, `/${verb}`));
        this.refusal = "";
      } catch (problem) {
        this.refusal = `${queue.name}: ${problem.message}`;
      }
      this.stale = true;
      pollNow();
    };
  }

  pauseButton(queue) {
    if (!may("admin")) return nothing;
    return queue.paused
      ? html`<button class="btn slim" aria-label="Resume ${queue.name}" @click=${this.act(queue, "resume")}>Resume</button>`
      : html`<button class="btn slim" aria-label="Pause ${queue.name}" @click=${() => askPause(queue, this.act(queue, "pause"))}>Pause</button>`;
  }

  row(queue) {
    const { counts } = queue;
    const cell = (label, state) =>
      html`<td class="right" data-label=${label}><a class="plain ${counts[state] && state === "failed" ? "failed bold" : ""}" href=${queueLink(queue.name, { state })}>${number(counts[state])}</a></td>`;
    const late = !queue.paused && queue.workers === 0 && waitingIn(queue);
    return html`<tr @click=${openRow}>
      <td class="cut task"><a class="bold" href=${queueLink(queue.name)}>${queue.name}</a></td>
      <td>${healthOf(queue)}</td>
      <td class="right" data-label="Waiting"><a class="plain" href=${queueLink(queue.name, { state: counts.waiting || !counts.prioritized ? "waiting" : "prioritized" })}>${number(waitingIn(queue))}</a></td>
      <td class="right hide ${late ? "warn bold" : ""}">${duration(queue.oldest_waiting_ms)}</td>
      ${cell("Active", "active")}${cell("Delayed", "delayed")}
      <td class="right hide low">${number(counts["waiting-children"])}</td>
      <td class="right hide"><a class="plain" href=${queueLink(queue.name, { state: "completed" })}>${number(counts.completed)}</a></td>
      ${cell("Failed", "failed")}
      <td class="right hide low">${queue.workers ?? ""}</td>
      ${may("admin") ? html`<td class="right act">${this.pauseButton(queue)}</td>` : nothing}</tr>`;
  }

  table(queues) {
    return html`<table class="hit systems queues"><thead><tr><th>Queue</th><th>Health</th><th class="right">Waiting</th><th class="right">Oldest</th><th class="right">Active</th><th class="right">Delayed</th><th class="right low">For children</th><th class="right">Completed</th><th class="right">Failed</th><th class="right low">Workers</th>${may("admin") ? html`<th><span class="vh">Act</span></th>` : nothing}</tr></thead>
      <tbody>${repeat(
        queues.slice(0, MOST),
        (queue) => queue.name,
        (queue) => this.row(queue),
      )}</tbody></table>
      <div class="scan">${queues.length > MOST ? html`The first ${MOST} of ${plural(queues.length, "queue")}. Filter by a part of the name.` : `${plural(queues.length, "queue")}, that is all.`}</div>`;
  }

  foundView() {
    if (!this.q || !this.found?.length) return nothing;
    return html`<section><header><h2>Jobs</h2><span class="muted small">with “${this.q}” in their name or id</span></header>
      <table class="hit jobs"><thead><tr><th>State</th><th>Name</th><th>Id</th><th>Queue</th><th class="right">Added</th></tr></thead><tbody>
      ${this.found.slice(0, 50).map(
        (each) =>
          html`<tr @click=${openRow}><td>${stateView(each.status)}</td>
        <td class="bold task cut"><a href=${queueJobLink(each.name, each.id)}>${each.task || "no name"}</a></td><td class="id"><code>${each.id}</code></td>
        <td class="muted hide">${each.name}</td><td class="right at">${time(each.created_ts, { day: true })}</td></tr>`,
      )}</tbody></table></section>`;
  }

  submit = () => addSheet({ queue: this.queues?.[0]?.name ?? "" });

  nothing() {
    if (this.q)
      return this.found?.length
        ? nothing
        : empty(
            `No queue with “${this.q}” in its name.`,
            `Looked at ${plural(this.queues.length, "queue")}, and for jobs with this name or id.`,
            html`<a class="btn" href=${queueLink()}>Clear filter</a>`,
          );
    return empty(
      "No queue yet.",
      app.me?.read_only
        ? "Queues appear here when a program adds a job to one."
        : "A queue begins with its first job. From a terminal:",
      app.me?.read_only ? nothing : command(`jobwire queue add mail send '{"to": "you"}'`),
    );
  }

  view() {
    if (!this.queues) return nothing;
    const q = this.q.toLowerCase();
    const shown = this.queues.filter((queue) => queue.name.toLowerCase().includes(q));
    const paused = this.queues.filter((queue) => queue.paused).length;
    return html`<div class="bar">${filterField(this, "Filter queues and jobs by name or id", "Queue, job name or id")}
        ${wireSwitch(WIRE)}<span class="grow"></span><span class="muted small wide">${paused ? `${count(paused)} paused` : nothing}</span></div>
      ${refusalView(this.refusal)}${this.own?.view(q) ?? nothing}
      ${shown.length ? html`${this.own ? html`<section><header><h2>Queues of BullMQ</h2></header>${this.table(shown)}</section>` : this.table(shown)}` : this.own?.shows(q) ? nothing : this.nothing()}${this.foundView()}`;
  }
}

export const open = (route) => new Queues(route);
