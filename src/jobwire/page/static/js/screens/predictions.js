// Predictions: the photo bot's tasks, newest first, with their pictures and what was done when.
import {
  html,
  nothing,
  icon,
  state,
  copy,
  copyButton,
  command,
  empty,
  openRow,
  segments,
  time,
} from "../ui.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { app, announce, may, update } from "../store.js";
import { get, post } from "../api.js";
import { count, duration, now, plural, shortId, zone } from "../format.js";
import { picture, thumbnail } from "../pictures.js";
import { go, link } from "../router.js";
import { pollNow } from "../poll.js";

const LIMIT = 20;
const KINDS = ["", "open", "succeeded", "failed"];
const NAMES = { "": "All", open: "Open", succeeded: "Done", failed: "Failed" };
const STEPS = {
  accepted: ["Message received", "its task was created once"],
  stored: ["Provider was busy", "asked again at the time that it named"],
  submitting: ["Provider asked", "the photo is in the bucket"],
  started: ["Prediction begun", "waiting for its outcome"],
  finished: ["Outcome known", "by the provider's webhook, or by asking it"],
  settled: ["Outcome stored", "in the bucket; it never changes"],
  delivered: ["Delivered", "the user's message was edited"],
};
// The words of a code; other codes are shown as they are.
const CODES = {
  too_large: "the photo is too large",
  not_a_photo: "not a JPEG or PNG photo",
  photo_unavailable: "the photo could not be downloaded",
  too_many_at_once: "too many photos of this chat at once",
  too_many_per_hour: "too many photos of this user in an hour",
  too_many_in_album: "too many photos in the album",
  busy: "the provider is busy",
  provider_failed: "the model failed",
  provider_rejected: "the provider refused the request",
  provider_account: "the provider refuses the bot's account",
  content_refused: "the content was refused",
  canceled: "it was canceled",
  timeout: "no outcome in time",
  output_expired: "the output was gone before it was stored",
  output_refused: "the output could not be used",
  blocked: "the user has blocked the bot",
};

const at = (text) => Date.parse(text);
const settled = (task) => task.status === "succeeded" || task.status === "failed";
const finished = (task) => settled(task) && (task.state === null || task.state === "delivered");
const stateOf = (task) =>
  ({ queued: "waiting", processing: "running", succeeded: "done" })[task.status] ?? "failed";
const picturePath = (task, number) =>
  `/v1/predictions/${encodeURIComponent(task.id)}/pictures/${number}`;
const stepOf = (task) =>
  task.error
    ? (CODES[task.error] ?? task.error)
    : (STEPS[task.state]?.[0].toLowerCase() ?? task.status);
const took = (task) =>
  duration(
    (finished(task) ? at(task.history?.at(-1)?.at ?? task.updated_at) : now()) -
      at(task.history?.[0]?.at ?? task.created_at),
  );

class Predictions {
  body = null;
  task = null; // the one that is shown
  gone = false;
  busy = false;
  result = "";
  title = () => "Predictions";

  constructor(route) {
    this.changed(route);
  }

  changed(route) {
    const kind = route.query.get("state") ?? "";
    if (kind !== this.kind) this.readAt = 0;
    this.kind = KINDS.includes(kind) ? kind : "";
    const id = route.parts[1] ?? "";
    if (id !== this.id) Object.assign(this, { id, task: null, gone: false });
  }

  // The list costs the bucket a few calls: it is read with what changes seldom.
  async poll(rare) {
    await Promise.all([
      rare || !this.readAt ? this.readList() : null,
      this.id ? this.readTask(this.id) : null,
    ]);
    if (!this.id && this.body?.predictions.length) await this.readTask(this.body.predictions[0].id);
  }

  async readList() {
    const { kind } = this;
    this.readAt = Date.now();
    const body = await get("/v1/predictions/recent", { status: kind, limit: LIMIT });
    if (kind === this.kind) this.body = body;
  }

  async readTask(id) {
    if (this.gone || (this.task?.id === id && finished(this.task))) return;
    const before = this.id;
    try {
      const task = await get(`/v1/predictions/${encodeURIComponent(id)}`);
      if (before === this.id) this.task = task;
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      if (before === this.id && before) this.gone = true;
    }
  }

  reconcile = async () => {
    Object.assign(this, { busy: true, result: "" });
    update();
    try {
      const pass = await post("/v1/predictions/reconcile");
      const more = [
        pass.taken_over && `${pass.taken_over} of other programs`,
        pass.failed && `${pass.failed} failed`,
        !pass.complete && "stopped at the time limit",
      ].filter(Boolean);
      this.result = `${plural(pass.open, "open task")}, ${pass.delivered} delivered${more.length ? `, ${more.join(", ")}` : ""}.`;
      announce(`Reconciled: ${this.result}`);
      this.readAt = 0;
      pollNow();
    } catch (problem) {
      this.result = problem.message;
    }
    this.busy = false;
    update();
  };

  row(task) {
    const open = this.shown()?.id === task.id;
    return html`<tr class=${open ? "picked" : ""} @click=${openRow}>
      <td class="th">${thumbnail(task.pictures ? picturePath(task, 1) : "", "")}</td>
      <td class="state">${state(stateOf(task))}</td>
      <td class="name"><a class="cut" href=${link(["predictions", task.id], { state: this.kind })} aria-current=${open ? "true" : nothing}>${task.prompt || html`<span class="muted">no prompt</span>`}</a><code class="muted tiny cut">${shortId(task.id)}</code></td>
      <td class="hide says ${task.error ? (settled(task) ? "failed" : "warn") : "muted"}">${stepOf(task)}</td>
      <td class="right at">${took(task)}<span class="muted tiny">${task.created_at ? time(at(task.created_at), { day: true }) : ""}</span></td></tr>`;
  }

  list() {
    const { predictions: tasks, looked_at: looked, total } = this.body;
    if (!tasks.length && !this.kind) return this.none();
    if (!tasks.length)
      return empty(
        `No ${NAMES[this.kind].toLowerCase()} task.`,
        `Looked at ${count(looked)} of ${plural(total, "task")}.`,
        html`<a class="btn" href="#/predictions">All tasks</a>`,
      );
    return html`<table class="hit media tasks"><thead><tr><th>Picture</th><th>State</th><th>Prompt</th><th>Step</th><th class="right">Took, at ${zone.name}</th></tr></thead>
        <tbody>${repeat(
          tasks,
          (task) => task.id,
          (task) => this.row(task),
        )}</tbody></table>
      <div class="scan"><span>${total > tasks.length ? `${count(tasks.length)} shown, looked at ${count(looked)} of ${plural(total, "task")}.` : `${plural(tasks.length, "task")}, that is all.`} Tasks are deleted after 2 days, pictures after 14.</span></div>`;
  }

  none = () =>
    empty(
      "No task yet.",
      "Try the bot without any account: a chat page, a bucket and a model on this machine.",
      this.demo() ?? command("jobwire bot demo"),
    );

  // Of the demo's own gateway: the chat is on the same address.
  demo = () =>
    app.me?.features.includes("demo")
      ? html`<a class="btn" href="/">${icon("predictions")}Open the demo chat</a>`
      : null;

  // The chosen task; without one the newest.
  shown() {
    const row = this.id
      ? this.body?.predictions.find((task) => task.id === this.id)
      : this.body?.predictions[0];
    return this.id || this.task?.id === row?.id ? (this.task ?? row) : row;
  }

  pictures(task) {
    if (!task.pictures)
      return html`<div class="pic hole">${task.status === "failed" ? "no picture" : "not ready yet"}</div>`;
    return Array.from({ length: task.pictures }, (_, i) => {
      const found = picture(picturePath(task, i + 1));
      const label =
        task.pictures > 1 ? `Output picture ${i + 1} of ${task.pictures}` : "Output picture";
      return found.url
        ? html`<a class="full" href=${found.url} download="${task.id}-${i + 1}" title="Download"><img class="pic" src=${found.url} alt=${label} /></a>`
        : html`<div class="pic hole">${found.error ?? ""}</div>`;
    });
  }

  history(task) {
    const steps = task.history ?? [];
    if (!steps.length)
      return html`<p class="muted small">Made by another program: only its task object is known.</p>`;
    const done = finished(task);
    return html`<ol class="steps">${steps.map(({ state: name, at: when }, i) => {
      const last = i === steps.length - 1;
      const [title, text] = STEPS[name] ?? [name, ""];
      const bad = task.status === "failed" && name === "finished";
      return html`<li><span class="st ${last && !done ? "running" : bad ? "failed" : "done"}">${icon(last && !done ? "running" : bad ? "failed" : "done", "")}</span>
        <b class="bold">${title}</b> ${time(at(when), { ms: true })}<span class="muted">${bad ? (CODES[task.error] ?? task.error) : text}</span></li>`;
    })}${done ? nothing : html`<li class="todo"><span class="st waiting">${icon("waiting", "")}</span><span class="muted">Delivered, not yet</span></li>`}</ol>`;
  }

  rail() {
    if (this.id && this.gone)
      return html`<aside class="rail">${empty("No such task.", "Tasks are deleted after 2 days.", html`<a class="btn" href=${link(["predictions"], { state: this.kind })}>All tasks</a>`)}</aside>`;
    const task = this.shown();
    if (!task) return nothing;
    const model = task.model ? html` · ${task.model}` : nothing;
    return html`<aside class="rail" aria-label="Task">${this.pictures(task)}
      <div class="row wrap gap"><b class="bold words">${task.prompt || "no prompt"}</b>${state(stateOf(task))}</div>
      <div class="muted small words"><code title=${task.id}>${shortId(task.id)}</code>${copy(task.id, "id")} · chat ${task.chat_id}${model}</div>
      ${task.status === "failed" && (task.message || task.error) ? html`<div class="notice bad gap">${icon("warn")}<div><b class="bold">${CODES[task.error] ?? task.error}</b>${task.message ? html`<div class="soft words">${task.message}</div>` : nothing}</div></div>` : nothing}
      ${!settled(task) && task.error ? html`<div class="notice gap">${icon("warn")}<div>${CODES[task.error] ?? task.error}; will retry</div></div>` : nothing}
      ${this.history(task)}
      <div class="row wrap gap">${copyButton(JSON.stringify(task, null, 2), "Copy as JSON")}</div></aside>`;
  }

  view() {
    if (!this.body) return nothing;
    const tabs = KINDS.map((kind) => [
      kind,
      kind === "open" && this.body.open ? `Open ${count(this.body.open)}` : NAMES[kind],
    ]);
    const bare = !this.body.predictions.length && !this.id;
    return html`<div class="bar">${segments(tabs, this.kind, (kind) => go(link(["predictions"], { state: kind })), "State")}
        <span class="grow"></span>${this.demo() ?? nothing}
        ${may("admin") ? html`<button class="btn" ?disabled=${this.busy} @click=${this.reconcile}>${icon("again")}${this.busy ? "Reconciling…" : "Reconcile now"}</button>` : nothing}</div>
      ${this.result ? html`<p class="small soft outcome" role="status">${this.result}</p>` : nothing}
      ${bare ? this.list() : html`<div class="beside"><div>${this.list()}</div>${this.rail()}</div>`}`;
  }
}

export const open = (route) => new Predictions(route);
