// What the screens of single jobs have in common: live events, tabs, facts, keys on the wire, acts.
import { html, nothing, copy, copyButton, empty, meter, refusalView, state } from "./ui.js";
import { update } from "./store.js";
import { get } from "./api.js";
import { bytes, count, duration, now, size } from "./format.js";
import { compact, dotted } from "./json.js";
import { attemptsView, lifeline, lifeOf } from "./lifeline.js";
import { part, styled } from "./parts.js";
import { pollNow } from "./poll.js";

const MOST_EVENTS = 200;
const WIRE_MS = 3500; // the keys of an open tab are read again after this time

const wirePart = part(() => styled("text wire", import("./wire.js")));
export const jsonPart = part(() => styled("text", import("./jsonview.js")));

export const sizeOf = (value) => bytes(size(compact(value)));
// The data of an event; nothing where it is empty.
export function eventData({ data, exact = data }) {
  const text = typeof data === "string" ? data : compact(exact);
  return text === "{}" ? nothing : html`<code class="soft">${dotted(text)}</code>`;
}

// A subclass has: path, tabNames (the first one is shown by default), ended, failed, readJob(), newFollower(),
// took(event), isGone(problem), shape() and life() for the lifeline, and the views of its parts.
export class JobScreen {
  job = null;
  gone = null;
  events = [];
  shown = null; // the events of a paused list
  wire = null;
  showSecrets = false;
  all = false; // events
  stale = true; // the job and its keys have changed

  changed(route) {
    const tab = route.query.get("tab");
    this.chosen = this.tabNames.includes(tab) ? tab : "";
    this.stale = true;
  }

  // The tab of the URL. Without one a failed job opens on its error; one that fails while it is watched
  // stays on its events.
  get tab() {
    return this.chosen || this.firstTab;
  }
  get firstTab() {
    if (!this.job) return this.tabNames[0];
    this.opened ??= this.failed ? "result" : this.tabNames[0];
    return this.opened;
  }

  async poll(rare) {
    if (this.leaving || (this.gone && !rare)) return;
    const { stale } = this;
    this.stale = false;
    try {
      if (!this.job || !this.ended || rare || stale) this.job = await this.readJob();
      await Promise.all([
        this.tab === "wire" && (stale || Date.now() - this.wireAt > WIRE_MS) && this.readWire(),
        this.readMore?.(rare, stale),
      ]);
      this.gone = null;
    } catch (problem) {
      this.stale ||= stale;
      if (!this.isGone(problem)) throw problem;
      this.gone = problem;
      this.follower?.close();
      return;
    }
    this.follow();
  }

  async readWire() {
    this.wire = await get(`${this.path}/wire`);
    this.wireAt = Date.now();
  }

  follow() {
    this.follower ??= this.newFollower();
  }

  heard = (event) => {
    this.events.push(event);
    this.took(event);
    update();
  };

  gap = () =>
    this.heard({ type: "gap", ts: now(), step: "", data: "some events are missing here" });

  takenBack = (isKept) => {
    this.events = this.events.filter(isKept);
    this.shown &&= this.shown.filter(isKept);
    update();
  };

  paused(on) {
    this.shown = on ? [...this.events] : null;
  }

  close() {
    this.follower?.close();
  }

  // An act of the reader; why it was refused is shown.
  attempt = (act) => async () => {
    this.refusal = "";
    try {
      await act();
    } catch (problem) {
      this.refusal = problem.message;
    }
    this.stale = true;
    pollNow();
  };

  headOf({ title, word, attempts, percent, message, id, more = nothing }) {
    return html`<div class="jobhead"><div class="grow">
      <div class="row wrap"><h2>${title}</h2>${word}<span class="muted small">${attempts}</span>${percent === null ? nothing : meter(percent, message)}</div>
      <div class="row wrap muted small"><span class="row"><code class="cut">${id}</code>${copy(id, "id")}</span>${more}</div></div>${this.acts()}</div>`;
  }

  // [[name, value], …]; false entries are left out.
  factsView = (rows) =>
    html`<aside class="rail" aria-label="Facts"><dl>${rows.filter(Boolean).map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl></aside>`;

  // [[id, label, small text], …]; false entries are left out.
  tabsView = (entries) =>
    html`<nav class="tabs jobtabs" aria-label="Job">${entries
      .filter(Boolean)
      .map(
        ([id, label, note]) =>
          html`<a href=${this.href({ tab: id === this.firstTab ? "" : id })} aria-current=${id === this.tab ? "true" : nothing}>${label}${note ? html`<span class="n">${note}</span>` : nothing}</a>`,
      )}</nav>`;

  jsonView = (value, label = `${sizeOf(value)}. Numbers are shown digit for digit.`) =>
    jsonPart(({ jsonTab }) => jsonTab(this, value, label));

  noResult = ({ status, due_ts }) =>
    empty(
      "No result yet.",
      status === "running"
        ? "The job is running."
        : due_ts
          ? "The job waits for its time."
          : "The job waits for a worker.",
    );

  get follows() {
    return this.follower && !this.ended;
  }

  // Rows of events, the oldest first. `data(event, last)`; `by` is the column of who has written it.
  eventsView(rows, { first, name, data, by = null }) {
    const list = this.all ? rows : rows.slice(-MOST_EVENTS);
    const more = rows.length > list.length;
    const showAll = () => {
      this.all = true;
      update();
    };
    const live = this.shown
      ? html`<span class="muted small">Paused; ${count(this.events.length - this.shown.length)} newer.</span>`
      : this.follows
        ? this.follower.state === "broken"
          ? state("scheduled", "Reconnecting")
          : state("running", "Live")
        : nothing;
    return html`<div class="tabhead">${live}
        <span class="muted small grow">${more ? `The last ${list.length} rows. ` : ""}Oldest first, each event once.</span>
        ${more ? html`<button class="btn slim" @click=${showAll}>Show ${count(rows.length)}</button>` : nothing}
        ${copyButton(JSON.stringify(this.events.map(({ id, type, ts, step, data: of }) => ({ id, type, ts, step, data: of }))))}</div>
      <table class="events"><thead class="vh"><tr><th>After</th><th>Type</th>${by ? html`<th>Written by</th>` : nothing}<th>Data</th></tr></thead><tbody>
      ${list.map(
        (event, i) =>
          html`<tr><td class="right muted">${event.ts === first ? "0" : `+${duration(event.ts - first)}`}</td><td>${name(event)}</td>
        ${by ? html`<td class="muted mono wide">${by(event)}</td>` : nothing}<td class="data">${data(event, i === list.length - 1)}</td></tr>`,
      )}</tbody></table>`;
  }

  view() {
    if (this.gone) return this.goneView();
    if (!this.job) return nothing;
    const shape = this.shape();
    const life = lifeOf(shape, this.life());
    const { noWorker } = this;
    return html`${this.head()}${refusalView(this.refusal)}${this.notices()}
      <div class="job"><div>${lifeline(shape, life, { noWorker })}${attemptsView(shape, life)}
        ${this.tabsView(this.tabs())}${this.tab === "wire" ? wirePart(({ wireView }) => wireView(this.wire, this.wireAt)) : this.tabView()}</div>${this.factsView(this.facts(shape))}</div>`;
  }
}
