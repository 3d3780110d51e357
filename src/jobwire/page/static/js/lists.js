// A list of jobs: a selection, and rows that do not move while the user reads them. At most 200 rows are
// in the page.
import { html, nothing } from "./ui.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { may, update } from "./store.js";
import { ask } from "./dialog.js";
import { each } from "./acts.js";
import { plural } from "./format.js";
import { pollNow } from "./poll.js";

export const PAGE = 50;
const MOST = 200;

// A subclass has: idOf(job), asked() (a text that changes with the filter), read(after) → a page with
// jobs and scanned, next(page) → where the following one begins, and showResult(result, refusal).
export class JobList {
  rows = null;
  page = null; // the last page that was read
  scanned = 0;
  older = false; // older pages are shown: the list is not refreshed
  held = 0; // new jobs that are not shown while the pointer rests on the list
  picked = new Set();
  anchor = -1;
  pointed = false;
  reading = true; // what comes next replaces the rows in any case

  fresh() {
    Object.assign(this, {
      older: false,
      held: 0,
      picked: new Set(),
      anchor: -1,
      pointed: false,
      reading: true,
    });
  }

  async readNewest() {
    if (this.older) return;
    const asked = this.asked();
    const page = await this.read();
    if (this.older || asked !== this.asked()) return;
    // Rows stay where they are under the pointer and while some are selected.
    if (!this.reading && (this.pointed || this.picked.size)) {
      const byId = new Map(page.jobs.map((job) => [this.idOf(job), job]));
      const shown = new Set(this.ids());
      this.rows = this.rows.map((job) => byId.get(this.idOf(job)) ?? job);
      this.held = page.jobs.filter((job) => !shown.has(this.idOf(job))).length;
    } else Object.assign(this, { rows: page.jobs, held: 0 });
    Object.assign(this, { page, scanned: page.scanned, reading: false });
  }

  further = async () => {
    try {
      const page = await this.read(this.next(this.page));
      this.older = true;
      this.rows = [...this.rows, ...page.jobs].slice(-MOST);
      this.scanned += page.scanned;
      this.page = page;
    } catch (problem) {
      this.showResult("", problem.message);
    }
    update();
  };

  newest = () => {
    this.fresh();
    pollNow();
  };

  ids = () => this.rows.map(this.idOf);

  pickAll(on) {
    this.picked = new Set(on ? this.ids() : []);
    update();
  }

  escape = () => this.pickAll(false);

  // Select a row, or with shift all rows since the last one.
  pick(at, event) {
    const first = event.shiftKey && this.anchor >= 0 ? this.anchor : at;
    for (const id of this.ids().slice(Math.min(first, at), Math.max(first, at) + 1))
      this.picked[event.target.checked ? "add" : "delete"](id);
    this.anchor = at;
    update();
  }

  // Ask, and then act on each selected job.
  actOnPicked(act, word, { title, text, yes, danger = false }) {
    const ids = [...this.picked];
    ask(
      title,
      text,
      async () => {
        const { done, refusal } = await each(ids, act, word);
        const counted = `${plural(done, "job")} ${word}`;
        this.showResult(
          refusal ? "" : `${counted}.`,
          refusal ? `${counted}; ${ids.length - done} not: ${refusal.message}` : "",
        );
        this.newest();
      },
      { yes, danger },
    );
  }

  // Views

  box = (job, at) =>
    may("submit")
      ? html`<td class="hide"><input type="checkbox" aria-label="Select ${this.idOf(job)}" .checked=${live(this.picked.has(this.idOf(job)))} @click=${(event) => this.pick(at, event)} /></td>`
      : nothing;

  allBox() {
    if (!may("submit")) return nothing;
    const all = this.rows.length > 0 && this.ids().every((id) => this.picked.has(id));
    return html`<th><input type="checkbox" aria-label="Select all rows" .checked=${live(all)} @click=${(event) => this.pickAll(event.target.checked)} /></th>`;
  }

  tableView = (heads, rows) =>
    html`<table class="hit jobs" @mouseenter=${() => (this.pointed = true)} @mouseleave=${() => (this.pointed = false)}>
    <thead><tr>${this.allBox()}${heads}</tr></thead><tbody>${rows}</tbody></table>`;

  // `acts(jobs, count in words)`: only acts that fit every selected job are offered.
  pickBar(acts) {
    const chosen = (this.rows ?? []).filter((job) => this.picked.has(this.idOf(job)));
    if (!chosen.length) return nothing;
    return html`<div class="pick" role="region" aria-label="Selection"><b class="bold">${chosen.length} selected</b>
      ${acts(chosen, plural(chosen.length, "job"))}<button class="btn ghost" @click=${this.escape}>Clear<kbd class="wide">esc</kbd></button></div>`;
  }

  heldButton = () =>
    this.held
      ? html`<button class="btn slim" @click=${this.newest}>${plural(this.held, "new job")}</button>`
      : nothing;
  furtherButton = (cls) =>
    this.next(this.page)
      ? html`<button class=${cls} @click=${this.further}>Look further</button>`
      : nothing;

  // How far the list has looked, in words.
  scanView = (text, first) =>
    html`<div class="scan"><span>${text}</span>${this.furtherButton("btn slim")}
    ${this.older ? html`<button class="btn slim" @click=${this.newest}>Back to the ${first}</button>` : nothing}</div>`;
}
