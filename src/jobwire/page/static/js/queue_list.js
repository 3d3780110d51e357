// The jobs of a queue in one state, or with a text in their name or id, and acts on many at once.
import { html, nothing, icon, empty } from "./ui.js";
import { may } from "./store.js";
import { count, plural } from "./format.js";
import { JobList, PAGE } from "./lists.js";
import { queueTable } from "./queue_table.js";
import { promoteJob, removeJob, retryJob } from "./queue_acts.js";
import { ENDED, listJobs, queueLink, wordOf } from "./queues.js";

class QueueList extends JobList {
  constructor(screen) {
    super();
    this.screen = screen;
  }

  idOf = (job) => job.id;
  asked = () => [this.screen.state, this.screen.q].join("\n");
  read = (first) =>
    listJobs(this.screen.queue, { state: this.screen.state, q: this.screen.q, first, limit: PAGE });
  next = (page) => page.next;
  poll = () => this.readNewest();
  showResult = (result, refusal) => this.screen.showResult(result, refusal);

  // What can be done with all jobs of the chosen state; the count is that of the state.
  stateActs() {
    const { state, q, info } = this.screen;
    const n = info.counts[state];
    if (!may("admin") || q || !n) return nothing;
    const jobs = plural(n, `${wordOf(state).toLowerCase()} job`);
    const button = (verb, word, done, text, body, cls = "") =>
      html`<button class="btn slim ${cls}" @click=${() =>
        this.screen.ask(
          verb,
          { title: `${word} ${jobs}?`, text, yes: `${word} ${count(n)}`, danger: !!cls },
          body,
          (gone) => `${plural(gone, "job")} ${done}.`,
        )}>${verb === "retry" ? icon("again") : nothing}${word} all ${count(n)}</button>`;
    const retry = button(
      "retry",
      "Retry",
      "wait again",
      "They wait again, in the order in which they ended, and keep their ids.",
      { state },
    );
    const promote = button(
      "promote",
      "Promote",
      "promoted",
      "They run as soon as workers are free, and do not wait for their time.",
    );
    const remove = button(
      "clean",
      "Remove",
      "removed",
      "They are deleted with their data, results and logs.",
      { state },
      "danger",
    );
    return (
      {
        failed: [retry, remove],
        completed: remove,
        delayed: [promote, remove],
        waiting: remove,
        prioritized: remove,
      }[state] ?? nothing
    );
  }

  acts = (chosen, jobs) => {
    const n = chosen.length;
    const { queue } = this.screen;
    const are = (...states) => chosen.every((job) => states.includes(job.state));
    const button = (act, word, done, text, cls = "") =>
      html`<button class="btn ${cls}" @click=${() =>
        this.actOnPicked(act(queue), done, {
          title: `${word} ${jobs}?`,
          text,
          yes: `${word} ${n}`,
          danger: !!cls,
        })}>${act === retryJob ? icon("again") : nothing}${word} ${n}</button>`;
    return html`${are(...ENDED) ? button(retryJob, "Retry", "wait again", "The same jobs run again, with the same ids and data.") : nothing}
      ${are("delayed") ? button(promoteJob, "Promote", "promoted", "They run as soon as workers are free.") : nothing}
      ${chosen.some((job) => job.state === "active") ? nothing : button(removeJob, "Remove", "removed", "They are deleted with their data and logs, and with their children.", "danger")}`;
  };

  scan() {
    const { total, next } = this.page;
    if (this.screen.q) return `Looked at ${count(this.scanned)} of ${plural(total, "job")}.`;
    const order = ENDED.includes(this.screen.state) ? "newest first" : "the next one first";
    return next
      ? `${count(this.rows.length)} of ${plural(total, "job")}, ${order}.`
      : `${plural(total, "job")}, ${order}.`;
  }

  nothingFound() {
    const { queue, state, q } = this.screen;
    const what = state ? `${wordOf(state).toLowerCase()} job` : "job";
    return empty(
      `No ${what}${q ? ` with “${q}” in its name or id` : ""}.`,
      q
        ? `Looked at ${count(this.scanned)} of ${plural(this.page.total, "job")} of ${queue}.`
        : `${queue} has none in this state.`,
      this.furtherButton("btn"),
      html`<a class="btn" href=${queueLink(queue)}>Clear filter</a>`,
    );
  }

  view() {
    if (!this.page) return nothing;
    if (!this.rows.length) return this.reading ? nothing : this.nothingFound();
    const { queue, q } = this.screen;
    return html`<div class="tabhead"><span class="muted small grow">${q ? html`With “${q}” in name or id` : nothing}</span>${this.heldButton()}${this.stateActs()}</div>
      ${queueTable(queue, this.rows, this)}${this.scanView(this.scan(), "first")}${this.pickBar(this.acts)}`;
  }
}

export const open = (screen) => new QueueList(screen);
