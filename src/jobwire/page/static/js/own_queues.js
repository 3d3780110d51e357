// The queues of jobs, and the cron entries of the workers: pause, resume, purge, run now.
import { html, nothing, health, number, time } from "./ui.js";
import { may } from "./store.js";
import { get, post } from "./api.js";
import { ask } from "./dialog.js";
import { age, count, duration, now, plural, zone } from "./format.js";
import { takenBy } from "./fleet.js";
import { go, jobLink, link } from "./router.js";
import { pollNow } from "./poll.js";

const MOST = 200;

class OwnQueues {
  queues = [];
  crons = [];
  result = "";

  constructor(screen) {
    this.screen = screen;
  }

  async poll() {
    [this.queues, this.crons] = await Promise.all([
      get("/v1/jobs/queues").then((body) => body.queues),
      get("/v1/crons").then((body) => body.crons),
    ]);
  }

  // Shows what was done, or why it was refused.
  act =
    (path, text = () => "") =>
    async () => {
      try {
        this.result = text(await post(path)) ?? "";
        this.screen.refusal = "";
      } catch (problem) {
        this.result = "";
        this.screen.refusal = problem.message;
      }
      this.screen.stale = true;
      pollNow();
    };

  queuePath = (name, verb) => `/v1/jobs/queues/${encodeURIComponent(name)}/${verb}`;
  cronPath = (name, verb) => `/v1/crons/${encodeURIComponent(name)}/${verb}`;

  pause = ({ name, waiting, running }) =>
    ask(
      `Pause ${name}?`,
      `No worker starts another of its ${plural(waiting, "waiting job")}. ${plural(running, "running job")} will go on.`,
      this.act(this.queuePath(name, "pause"), ({ warning }) => warning ?? ""),
      { yes: "Pause queue", no: "Leave it" },
    );

  purge = ({ name, waiting }) =>
    ask(
      `Purge ${name}?`,
      `Its ${plural(waiting, "waiting job")} and its delayed jobs are canceled. Running jobs go on.`,
      this.act(
        this.queuePath(name, "purge"),
        ({ canceled }) => `${plural(canceled, "job")} of ${name} canceled.`,
      ),
      { yes: "Cancel these jobs", no: "Leave it", danger: true },
    );

  row = (queue) =>
    html`<tr>
    <td class="cut task"><b class="bold">${queue.name}</b></td><td>${health(...takenBy({ ...queue, slots: null }))}</td>
    <td class="right" data-label="Waiting">${number(queue.waiting)}</td>
    <td class="right ${queue.waiting && !queue.workers && !queue.paused ? "warn bold" : ""}" data-label="Oldest">${duration(queue.oldest_waiting_ms)}</td>
    <td class="right" data-label="Running">${number(queue.running)}</td><td class="right" data-label="Workers">${number(queue.workers)}</td>
    ${
      may("admin")
        ? html`<td class="right act">
      ${
        queue.paused
          ? html`<button class="btn slim" aria-label="Resume ${queue.name}" @click=${this.act(this.queuePath(queue.name, "resume"))}>Resume</button>`
          : html`<button class="btn slim" aria-label="Pause ${queue.name}" @click=${() => this.pause(queue)}>Pause</button>`
      }
      <button class="btn slim danger" aria-label="Purge ${queue.name}" @click=${() => this.purge(queue)}>Purge</button></td>`
        : nothing
    }</tr>`;

  cron = (entry) =>
    html`<tr>
    <td class="cut task"><b class="bold">${entry.name}</b></td>
    <td>${entry.paused ? health("pause", "Paused") : entry.live ? health("ok", "Live") : health("warn", "No worker")}</td>
    <td><code>${entry.schedule}</code> <span class="muted">${entry.tz}</span></td>
    <td class="right" data-label="Last">${entry.last_ts ? html`${time(entry.last_ts, { day: true })} <span class="muted">${age(now() - entry.last_ts)} ago</span>` : html`<span class="muted">none yet</span>`}</td>
    <td class="right" data-label="Next">${entry.next_ts && !entry.paused ? html`${time(entry.next_ts, { day: true })} <span class="muted">in ${age(entry.next_ts - now())}</span>` : html`<span class="muted">none</span>`}</td>
    ${
      may("admin")
        ? html`<td class="right act"><button class="btn slim" aria-label="Run now: ${entry.name}" @click=${this.act(this.cronPath(entry.name, "run"), ({ job_id }) => void go(jobLink("streams", job_id)))}>Run now</button>
      ${
        entry.paused
          ? html`<button class="btn slim" aria-label="Resume ${entry.name}" @click=${this.act(this.cronPath(entry.name, "resume"))}>Resume</button>`
          : html`<button class="btn slim" aria-label="Pause ${entry.name}" @click=${this.act(this.cronPath(entry.name, "pause"))}>Pause</button>`
      }</td>`
        : nothing
    }</tr>`;

  found = (rows, q) => rows.filter((row) => row.name.toLowerCase().includes(q)).slice(0, MOST);
  shows = (q) => this.found([...this.queues, ...this.crons], q).length > 0;

  view(q) {
    const [queues, crons] = [this.found(this.queues, q), this.found(this.crons, q)];
    const acts = may("admin") ? html`<th><span class="vh">Act</span></th>` : nothing;
    return html`${this.result ? html`<p class="small soft gap" role="status">${this.result}</p>` : nothing}
      ${
        queues.length
          ? html`<section><header><h2>Queues of jobs</h2><span class="grow"></span><a class="link small" href=${link(["jobs"])}>All jobs</a></header>
        <table class="systems own"><thead><tr><th>Queue</th><th>Health</th><th class="right">Waiting</th><th class="right">Oldest</th><th class="right">Running</th><th class="right">Workers</th>${acts}</tr></thead>
        <tbody>${queues.map(this.row)}</tbody></table></section>`
          : nothing
      }
      ${
        crons.length
          ? html`<section><header><h2>Cron</h2><span class="muted small">${plural(crons.length, "entry", "entries")}${crons.some((each) => each.paused) ? `, ${count(crons.filter((each) => each.paused).length)} paused` : ""}</span></header>
        <table class="schedulers crons"><thead><tr><th>Entry</th><th>Health</th><th>When</th><th class="right">Last, ${zone.name}</th><th class="right">Next, ${zone.name}</th>${acts}</tr></thead>
        <tbody>${crons.map(this.cron)}</tbody></table></section>`
          : nothing
      }`;
  }
}

export const open = (screen) => new OwnQueues(screen);
