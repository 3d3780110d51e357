// Workers and backends: who runs what, and the health of each part with its fix.
import { html, nothing, icon, health, command, empty, segments, timeAgo } from "../ui.js";
import { app, may, update } from "../store.js";
import { get } from "../api.js";
import { age, count, duration, now, plural, shortId, shortWorker } from "../format.js";
import { compact } from "../json.js";
import { jobLink } from "../router.js";
import { unavailableView } from "../fleet.js";

const SHOWN = 6;
const SQUARES = 48;
const SILENT_MS = 30000;
const QUEUES = 4;
const ROWS = 100;
const SPLIT = 5;

const slots = (worker) => {
  if (!worker.slots)
    return worker.system === "jobs" || worker.system === "queues"
      ? html`<span class="muted wide">not known</span>`
      : nothing;
  const squares = Array.from({ length: Math.min(SQUARES, worker.slots) }, (_, i) => {
    const slot = worker.running[i];
    return html`<i class=${slot ? (slot.job_id ? "used" : "other") : ""}></i>`;
  });
  return html`<span class="slots" role="img" aria-label="${worker.running.length} of ${worker.slots} slots in use">${squares}</span>`;
};

const held = (worker) =>
  html`<div class="held">${worker.running.slice(0, SHOWN).map(
    (slot) =>
      html`
  ${slot.job_id ? html`<a class="link mono" href=${jobLink(slot.wire ?? "streams", slot.job_id, {}, slot.queue)} title=${slot.job_id}>${shortId(slot.job_id)}</a>` : html`<span class="muted">another tenant</span>`}
  <span class="cut">${slot.task ?? ""}</span><span class="muted">running for ${duration(now() - slot.since_ts)}</span>`,
  )}</div>
  ${worker.running.length > SHOWN ? html`<span class="muted small">and ${count(worker.running.length - SHOWN)} more</span>` : nothing}`;

// What it serves: its tasks, and its queues on other wires; the queue that it was seen on.
const serves = (worker) => {
  const others = worker.serves
    .filter((each) => each.wire !== worker.wire)
    .map((each) => each.queue);
  const queues = worker.serves.length ? others : worker.system === "queues" ? worker.queues : [];
  return html`${worker.handlers.join(" ")} ${queues.length ? html`<span class="muted">${queues.slice(0, QUEUES).join(" ")}${queues.length > QUEUES ? ` +${queues.length - QUEUES}` : ""}</span>` : nothing}`;
};

function workerRows(worker) {
  // A worker that is seen by its open socket has no heartbeat.
  const bySocket = worker.wire === "bullmq";
  const silent = !bySocket && worker.heartbeat_age_ms > SILENT_MS;
  const wrong = silent || worker.lacks.length;
  return html`<tr>
    <td><b class="bold">${shortWorker(worker.name)}</b> ${worker.pid ? html`<span class="muted">pid ${worker.pid}</span>` : nothing} ${worker.wire === "streams" ? nothing : html`<span class="tag">${worker.wire}</span>`} ${worker.ours ? nothing : html`<span class="tag">foreign</span>`}</td>
    <td>${health(wrong ? "warn" : "ok", bySocket ? "connected" : `${age(worker.heartbeat_age_ms)} ago`)}</td>
    <td>${slots(worker)}</td>
    <td class="right hide">${worker.running.length}${worker.slots ? html` <span class="muted">/ ${worker.slots}</span>` : nothing}</td>
    <td class="soft mono hide tasks">${serves(worker)}</td>
    <td class="right muted hide">${worker.started_ts ? age(now() - worker.started_ts) : ""}</td>
    <td class="right muted hide low">${worker.version ?? ""}</td></tr>
    ${worker.running.length ? html`<tr class="inner"><td colspan="7">${held(worker)}</td></tr>` : nothing}
    ${worker.lacks.length ? html`<tr class="inner"><td colspan="7">${worker.lacks.map((lack) => html`<div class="notice">${icon("warn")}<div><b class="bold">${lack.part}</b>: ${lack.wrong}. <span class="soft">${lack.what_to_do}</span></div></div>`)}</td></tr>` : nothing}`;
}

const STATES = {
  ready: ["ok", "Ready"],
  degraded: ["warn", "Degraded"],
  starting: ["scheduled", "Starting"],
  restarting: ["scheduled", "Restarting"],
  down: ["failed", "Down"],
};
// A fix that is a command of the server is shown as one that can be copied.
const fixView = (fix) => {
  const found = /^(CONFIG SET [^,;]+)/.exec(fix);
  return found
    ? html`<div>${command(`jobwire valkey ${found[1].trim()}`)}</div>`
    : html`<span class="soft">${fix}</span>`;
};

// Its jobs wait in the queue of the worker that was started last; other queues of it get none.
const splitView = ({ name, queue, queues }) =>
  html`<div class="notice">${icon("warn")}<div><b class="bold">Task ${name} is live in ${queues.length} queues: ${queues.join(", ")}.</b>
  New jobs wait in ${queue}, the queue of the worker that was started last. <span class="soft">Give the App one name, or the handler one queue=, in every worker.</span></div></div>`;

// A part with what its server reports about itself; the worst of it is its state.
function partRow(part, findings) {
  const own = findings.filter((each) => each.check.split(" ")[0] === part.name);
  const fault = own.find((each) => each.verdict === "fault");
  const shown =
    fault && part.state === "ready"
      ? ["failed", "Fault"]
      : (STATES[part.state] ?? ["warn", part.state]);
  return html`<tr><td>${part.name}</td><td>${health(...shown)}</td>
    <td>${part.note ?? ""} ${part.what_to_do ? html`<b class="bold">${part.what_to_do}</b>` : nothing}
      ${own.map((each, i) => html`${i ? ", " : ""}<span class=${each.verdict === "ok" ? "" : each.verdict === "note" ? "warn" : "failed bold"}>${each.found}</span>`)}</td>
    <td class="right muted hide">${part.latency_ms == null ? "" : `${part.latency_ms.toFixed(1)} ms`}</td></tr>`;
}

class Workers {
  workers = null;
  backends = null;
  settings = null;
  all = false;
  title = () => html`Workers <span class="wide">and backends</span>`;

  async poll(rare) {
    const admin = may("admin") || app.me?.scopes.includes("admin");
    const first = this.workers === null;
    [this.workers, this.backends, this.settings, this.split] = await Promise.all([
      get("/v1/workers")
        .then((body) => {
          this.unavailable = body.unavailable;
          return body.workers;
        })
        .catch(none),
      admin && (first || rare) ? get("/v1/backends").catch(none) : this.backends,
      admin && first
        ? get("/v1/settings")
            .then((body) => body.settings)
            .catch(none)
        : this.settings,
      first || rare
        ? get("/v1/tasks")
            .then(({ tasks }) => tasks.filter((task) => task.queues.length > 1))
            .catch(none)
        : this.split,
    ]);
  }

  table() {
    if (!this.workers?.length)
      return empty(
        "No worker is running.",
        "Jobs wait until one comes. Start one:",
        command("jobwire worker"),
      );
    return html`<table class="workers"><thead><tr><th>Worker</th><th>Heartbeat</th><th>Slots</th><th class="right">Running</th><th>Tasks and queues</th><th class="right">Up for</th><th class="right low">Version</th></tr></thead>
      <tbody>${this.workers.slice(0, ROWS).map(workerRows)}</tbody></table>
      ${this.workers.length > ROWS ? html`<p class="muted small foot-note">and ${plural(this.workers.length - ROWS, "further worker")}.</p>` : nothing}`;
  }

  health() {
    const findings = this.backends?.findings ?? [];
    const faults = findings.filter(
      (each) => each.verdict === "fault" || each.verdict === "unreachable",
    );
    return html`<section><header><h2>Backends</h2><span class="grow"></span><span class="muted small">${this.backends ? html`examined ${timeAgo(this.backends.checked_ts)}` : nothing}</span></header>
      ${faults.map((each) => html`<div class="notice bad">${icon("warn")}<div><b class="bold">${each.check}: ${each.found}.</b> <div class="soft">${each.why}. ${fixView(each.fix)}</div></div></div>`)}
      <table class="parts"><thead class="vh"><tr><th>Part</th><th>State</th><th>Found</th><th>Latency</th></tr></thead>
        <tbody>${(app.parts ?? []).map((part) => partRow(part, findings))}</tbody></table></section>`;
  }

  settingsView() {
    if (!this.settings)
      return app.me?.scopes.includes("admin")
        ? nothing
        : html`<section><header><h2>Settings</h2></header><p class="muted small">Settings and the servers' own reports need a key with the scope <code>admin</code>.</p></section>`;
    const rows = this.settings.filter((each) => this.all || each.origin !== "default");
    return html`<section><header><h2>Settings</h2><span class="grow"></span>${segments(
      [
        [false, "Set"],
        [true, `All ${this.settings.length}`],
      ],
      this.all,
      (value) => {
        this.all = value;
        update();
      },
      "Settings",
    )}</header>
      ${
        rows.length
          ? html`<table class="settings"><thead class="vh"><tr><th>Name</th><th>Value</th><th>Source</th></tr></thead>
        <tbody>${rows.map((each) => html`<tr><td class="mono">${each.name}</td><td class="mono soft">${typeof each.value === "string" ? each.value || html`<span class="zero">empty</span>` : compact(each.value)}</td><td class="right muted">${each.origin}</td></tr>`)}</tbody></table>`
          : html`<p class="muted small">All settings have their defaults.</p>`
      }</section>`;
  }

  view() {
    if (this.workers === null) return nothing;
    return html`${unavailableView(this.unavailable)}${(this.split ?? []).slice(0, SPLIT).map(splitView)}${this.table()}${this.health()}${this.settingsView()}`;
  }
}

// What this key may not read, or this gateway does not have.
function none(problem) {
  if (problem.status === 403 || problem.status === 404) return undefined;
  throw problem;
}

export const open = () => new Workers();
