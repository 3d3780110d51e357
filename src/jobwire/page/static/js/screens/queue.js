// One queue: its states with their counts, and below them a list of jobs or the queue at a glance.
import { html, nothing, icon, command, empty, refusalView } from "../ui.js";
import { may, update } from "../store.js";
import { get, post } from "../api.js";
import { addSheet, ask } from "../dialog.js";
import { count, duration, plural } from "../format.js";
import { pollNow } from "../poll.js";
import { filterField, wireSwitch } from "../bar.js";
import { askPause } from "../queue_acts.js";
import { STATES, WIRE, queueLink, queuePath, shapeOf, waitingIn } from "../queues.js";

const BODIES = {
  list: () => import("../queue_list.js"),
  overview: () => import("../queue_overview.js"),
};

class Queue {
  info = null;
  gone = null;
  bodies = {}; // those that were opened
  typedText = "";
  result = "";
  refusal = "";

  constructor(route) {
    this.queue = this.label = route.query.get("queue");
    this.changed(route);
  }

  title = () => html`<a href=${queueLink()}>Queues</a><span class="sep">/</span>${this.queue}`;

  changed(route) {
    const state = route.query.get("state") ?? "";
    const q = route.query.get("q") ?? "";
    if (state === this.state && q === this.q) return;
    this.state = STATES.includes(state) ? state : "";
    this.q = q;
    if (this.typedText.trim() !== q) this.typedText = q;
    this.result = this.refusal = "";
    this.bodies.list?.fresh();
  }

  get kind() {
    return this.state || this.q ? "list" : "overview";
  }

  async poll(rare) {
    if (this.gone && !rare) return;
    try {
      this.info = await get(queuePath(this.queue));
      this.gone = null;
    } catch (problem) {
      if (problem.status !== 404 && problem.status !== 422) throw problem;
      this.gone = problem;
      return;
    }
    const { kind } = this;
    this.bodies[kind] ??= (await BODIES[kind]()).open(this);
    await this.bodies[kind].poll(rare);
  }

  escape = () => this.bodies.list?.escape();

  showResult(result, refusal = "") {
    Object.assign(this, { result, refusal });
    update();
  }

  // Shows what an act has done, in numbers of the server.
  async act(act, text = () => "") {
    try {
      this.showResult(text(await act()));
    } catch (problem) {
      this.showResult("", problem.message);
    }
    this.bodies[this.kind]?.fresh();
    pollNow();
  }

  // Ask, and then act on all jobs of a state, or on the queue.
  ask(verb, { title, text, ...options }, body, word) {
    const act = () => post(queuePath(this.queue, `/${verb}`), body && JSON.stringify(body));
    ask(title, text, () => this.act(act, ({ count: n }) => word(n)), options);
  }

  pause = () => askPause(this.info, () => this.act(() => post(queuePath(this.queue, "/pause"))));
  resume = () => this.act(() => post(queuePath(this.queue, "/resume")));
  submit = () =>
    addSheet({
      queue: this.queue,
      name: this.bodies.list?.rows?.[0]?.name ?? this.bodies.overview?.recent[0]?.name ?? "",
    });

  states = () =>
    html`<nav class="states" aria-label="State">${STATES.map((state) => {
      const here = state === this.state;
      const n = this.info.counts[state];
      return html`<a href=${queueLink(this.queue, { state: here ? "" : state, q: here ? "" : this.q })} aria-current=${here ? "true" : nothing}
      ><span class="st ${shapeOf(state)}">${icon(shapeOf(state), "")}<span class="cut">${state}</span></span><b class=${n ? "" : "zero"}>${count(n)}</b></a>`;
    })}</nav>`;

  notices() {
    const { info } = this;
    const waiting = waitingIn(info);
    const oldest =
      info.oldest_waiting_ms == null
        ? ""
        : ` The oldest has waited ${duration(info.oldest_waiting_ms)}.`;
    if (info.paused)
      return html`<div class="notice">${icon("pause")}<div><b class="bold">This queue is paused.</b> ${plural(waiting, "job")} ${waiting === 1 ? "waits" : "wait"}; no worker of any program starts one.</div></div>`;
    if (info.workers === 0 && waiting)
      return html`<div class="notice">${icon("warn")}<div><b class="bold">No worker takes jobs from this queue.</b>${oldest} Workers of the PyPI package are not seen.<div>${command("jobwire worker module:app")}</div></div></div>`;
    if (info.stalled)
      return html`<div class="notice">${icon("warn")}<div><b class="bold">${plural(info.stalled, "active job")} without a lock.</b> The worker has died or is blocked; the next stalled check of a worker requeues ${info.stalled === 1 ? "it" : "them"}.</div></div>`;
    return nothing;
  }

  view() {
    if (this.gone)
      return empty(
        this.gone.status === 404 ? "No such queue." : "This is not a valid queue name.",
        "A queue exists from its first job on. Another tenant's queue is not shown.",
        html`<a class="btn" href=${queueLink()}>All queues</a>`,
      );
    if (!this.info) return nothing;
    const pause = this.info.paused
      ? html`<button class="btn primary" @click=${this.resume}>Resume queue</button>`
      : html`<button class="btn" @click=${this.pause}>${icon("pause")}Pause queue</button>`;
    return html`<div class="bar">${filterField(this, "Filter by name or id", "Job name or id")}
        ${wireSwitch(WIRE)}<span class="grow"></span>${may("admin") ? pause : nothing}</div>
      ${this.notices()}${this.states()}${refusalView(this.refusal)}
      ${this.result ? html`<p class="small soft gap" role="status">${this.result}</p>` : nothing}
      ${this.bodies[this.kind]?.view() ?? nothing}`;
  }
}

export const open = (route) => new Queue(route);
