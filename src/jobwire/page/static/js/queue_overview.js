// A queue at a glance: what runs, what has just ended, flows that wait, rates, schedulers.
import { html, nothing, time } from "./ui.js";
import { may } from "./store.js";
import { call, get } from "./api.js";
import { bars } from "./charts.js";
import { ask } from "./dialog.js";
import { age, count, duration, now, plural, shortId, zone } from "./format.js";
import { part, styled } from "./parts.js";
import { queueTable } from "./queue_table.js";
import { STATES, childrenIn, jobPath, listJobs, queuePath } from "./queues.js";

const FEW = 6;
const TREES = 3;
const flowPart = part(() => styled("flow", import("./flow.js")));

const every = (ms) =>
  ms % 3600e3 === 0
    ? `every ${ms / 3600e3} h`
    : ms % 60e3 === 0
      ? `every ${ms / 60e3} min`
      : `every ${duration(ms)}`;

class QueueOverview {
  running = [];
  recent = [];
  trees = [];
  schedulers = null;

  constructor(screen) {
    this.screen = screen;
  }

  fresh() {
    this.schedulers = null;
  }

  async poll(rare) {
    const {
      queue,
      info: { counts, schedulers },
    } = this.screen;
    const few = (state) =>
      counts[state] ? listJobs(queue, { state, limit: FEW }).then((page) => page.jobs) : [];
    const [running, completed, failed] = await Promise.all([
      few("active"),
      few("completed"),
      few("failed"),
    ]);
    this.running = running;
    this.recent = [...completed, ...failed]
      .sort((a, b) => b.finished_on - a.finished_on)
      .slice(0, FEW);
    if (!rare && this.schedulers) return;
    const parents = counts["waiting-children"]
      ? await listJobs(queue, { state: "waiting-children", limit: TREES })
      : { jobs: [] };
    const trees = parents.jobs.map((job) => get(jobPath(queue, job.id, "/flow")).catch(() => null));
    this.trees = (await Promise.all(trees)).filter(Boolean);
    this.schedulers = schedulers
      ? await get(queuePath(queue, "/schedulers"))
      : { schedulers: [], total: 0 };
  }

  rates() {
    const { completed, failed } = this.screen.info;
    const minutes = (rates) => Array.from({ length: 60 }, (_, i) => rates.by_minute[59 - i] ?? 0);
    if (!completed.by_minute.length && !failed.by_minute.length) return nothing;
    const bad = minutes(failed);
    const both = minutes(completed).map((n, i) => n + bad[i]);
    return html`<h2>Ended per minute</h2>
      <div class="rates">${bars(both, bad, { width: 340, height: 64, label: "ended jobs by minute in the last hour, failed ones in red" })}</div>
      <div class="row tiny muted between"><span>1 h ago</span><span>now</span></div>`;
  }

  facts() {
    const { info } = this.screen;
    const rows = [
      ["Workers", info.workers ?? "unknown"],
      [
        "Oldest waiting",
        info.oldest_waiting_ms == null ? "none" : duration(info.oldest_waiting_ms),
      ],
      ["Stalled", info.stalled],
      ["Global concurrency", info.concurrency ?? "none"],
      [
        "Rate limit",
        info.rate_limit
          ? `${count(info.rate_limit.max)} in ${duration(info.rate_limit.duration)}`
          : "none",
      ],
      info.tenant && ["Tenant", info.tenant],
    ];
    return html`<dl class="pairs">${rows.filter(Boolean).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
  }

  removeScheduler({ id }) {
    const remove = () =>
      call("DELETE", queuePath(this.screen.queue, `/schedulers/${encodeURIComponent(id)}`));
    ask(
      `Remove the scheduler ${id}?`,
      "Its delayed job is removed with it. A job that waits or runs already goes on.",
      () => this.screen.act(remove, () => `Scheduler ${id} removed.`),
      { yes: "Remove scheduler", no: "Leave it", danger: true },
    );
  }

  scheduler = (each) =>
    html`<tr><td class="bold cut task">${each.id}</td>
    <td><code>${each.repeat.pattern ?? every(each.repeat.every)}</code> <span class="muted">${each.repeat.pattern ? (each.repeat.tz ?? "") : ""}</span></td>
    <td class="cut task" data-label="Job">${each.name}</td><td class="right" data-label="Made">${count(each.made)}${each.repeat.limit ? html`<span class="muted"> / ${count(each.repeat.limit)}</span>` : nothing}</td>
    <td class="right" data-label="Next">${each.next ? html`${time(each.next, { day: true })} <span class="muted">${each.next > now() ? `in ${age(each.next - now())}` : "due"}</span>` : html`<span class="muted">ended</span>`}</td>
    <td class="right muted low hide">${each.next_runs.slice(1).map((ts, i) => html`${i ? ", " : ""}${time(ts, { day: true })}`)}</td>
    ${may("admin") ? html`<td class="right act"><button class="btn slim danger" aria-label="Remove ${each.id}" @click=${() => this.removeScheduler(each)}>Remove</button></td>` : nothing}</tr>`;

  schedulersView() {
    const found = this.schedulers?.schedulers ?? [];
    if (!found.length) return nothing;
    return html`<section><header><h2>Schedulers</h2>${this.schedulers.total > found.length ? html`<span class="muted small">the next ${found.length} of ${count(this.schedulers.total)}</span>` : nothing}</header>
      <table class="schedulers"><thead><tr><th>Scheduler</th><th>When</th><th>Job</th><th class="right">Made</th><th class="right">Next, ${zone.name}</th><th class="right low">Then</th>${may("admin") ? html`<th><span class="vh">Act</span></th>` : nothing}</tr></thead><tbody>
      ${found.map(this.scheduler)}</tbody></table></section>`;
  }

  obliterate = () => {
    const { queue, info } = this.screen;
    const n = STATES.reduce((total, state) => total + info.counts[state], 0);
    this.screen.ask(
      "obliterate",
      {
        title: `Delete ${queue} with ${plural(n, "job")}?`,
        text: "The queue is deleted with its jobs, schedulers, events and counters. A queue whose jobs are being run is refused.",
        yes: `Delete queue and ${plural(n, "job")}`,
        no: "Leave it",
        danger: true,
      },
      null,
      (gone) => `The queue is deleted, with ${plural(gone, "job")}.`,
    );
  };

  tree = (tree) =>
    html`<section><header><h2>Flow</h2><span class="muted small"><code>${shortId(tree.job.id)}</code> waits for ${tree.job.counts.pending} of ${plural(childrenIn(tree.job.counts), "child", "children")}</span></header>
    ${flowPart(({ treeView }) => treeView(tree, this.screen.queue))}</section>`;

  view() {
    const {
      running,
      recent,
      trees,
      screen: { queue },
    } = this;
    return html`<div class="two queue"><div>${trees.map(this.tree)}
        ${running.length ? html`<section><header><h2>Running</h2></header>${queueTable(queue, running)}</section>` : nothing}
        ${recent.length ? html`<section><header><h2>Just ended</h2></header>${queueTable(queue, recent)}</section>` : nothing}
        ${running.length || recent.length || trees.length ? nothing : html`<section><p class="muted small">Nothing is running, and nothing has ended yet.</p></section>`}</div>
      <section class="side-facts">${this.rates()}${this.facts()}</section></div>${this.schedulersView()}
      ${may("admin") ? html`<section><button class="btn slim danger" @click=${this.obliterate}>Delete queue…</button></section>` : nothing}`;
  }
}

export const open = (screen) => new QueueOverview(screen);
