// Failures, by kind instead of by row: how often, since when, a sample, and run them again.
import { html, nothing, icon, empty, segments, timeAgo, time } from "../ui.js";
import { may, update } from "../store.js";
import { get, getJob } from "../api.js";
import { ask } from "../dialog.js";
import { each, retryMany } from "../acts.js";
import { clock, count, plural, shortId, shortWorker, zone } from "../format.js";
import { jobLink, link, go } from "../router.js";
import { bars, dataTable } from "../charts.js";
import { retryJob } from "../queue_acts.js";
import { getQueueJob, listJobs } from "../queues.js";
import { placeOf, unavailableView } from "../fleet.js";

const PAGES = 10;
const TEXTS = 10; // kinds whose sample is read
const RUNS_AGAIN = new Set(["jobs", "queues"]);
const keyOf = (kind) => [kind.system, kind.name, kind.task, kind.code, kind.message].join("\n");

// As the server groups them: the first line without ids and long numbers.
const UUID = /[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+/gi;
const firstLine = (message) =>
  String(message ?? "")
    .split(/[\r\n]/)[0]
    .slice(0, 200)
    .replace(UUID, "…")
    .replace(/[0-9a-f]{8,}/gi, "…")
    .replace(/\d{5,}/g, "…");
// The exception of a job, if the reader may see it.
const raised = ({ exception_type: type, exception_message: text }) =>
  type ? `${type}${text ? `: ${text}` : ""}` : "";
// The sample of a kind in the words of its system: what failed, in which way, and where it ran.
const SAMPLES = {
  jobs: async (kind) => {
    const job = await getJob(kind.sample_job_id);
    const error = job.error ?? {};
    return {
      code: error.code ?? "error",
      message: raised(job) || (error.message ?? job.error),
      trace: job.traceback,
      attempt: job.attempt,
      worker: job.worker,
      ts: job.updated_ts,
    };
  },
  queues: async (kind) => {
    const job = await getQueueJob(kind.name, kind.sample_job_id);
    return {
      code: job.name,
      message: job.failed_reason,
      trace: job.stacktrace.at(-1),
      attempt: job.attempts_made,
      worker: job.processed_by,
      ts: job.finished_on,
    };
  },
  images: async (kind) => {
    const image = await get(`/v1/images/${encodeURIComponent(kind.sample_job_id)}`);
    return { ...image.error, ts: Date.parse(image.updated_at) };
  },
  predictions: async (kind) => {
    const task = await get(`/v1/predictions/${encodeURIComponent(kind.sample_job_id)}`);
    return {
      code: task.error,
      message: task.model ?? "",
      ts: Date.parse(task.updated_at ?? task.created_at),
    };
  },
};
// The reason of a job of a queue, as the server splits it. The type of an exception that is only in the
// stack is not part of a summary.
const CODE = /^([A-Za-z_][\w.]{0,60}(?:Error|Exception))(?::\s*|$)/;
const reasonFits = (reason, kind) => {
  const text = String(reason ?? "");
  if (kind.code === "canceled") return text === "canceled";
  const found = CODE.exec(text);
  return (
    (found?.[1] ?? kind.code) === kind.code &&
    firstLine(text.slice(found?.[0].length ?? 0))
      .trim()
      .startsWith(kind.message.slice(0, 60))
  );
};
class Failures {
  body = null;
  texts = {}; // of the exceptions
  open = "";
  sample = null;
  busy = "";
  result = "";
  title = () => "Failures";

  constructor(route) {
    this.changed(route);
  }

  changed(route) {
    const hours = route.query.get("hours") === "1" ? 1 : 24;
    if (hours !== this.hours) this.body = null;
    this.hours = hours;
  }

  async poll(rare) {
    if (this.body && !rare) return;
    const { hours } = this;
    const body = await get("/v1/failures", { hours });
    if (hours === this.hours) this.body = body;
    await this.readTexts(body.failures);
  }

  // A handler's exception is no part of the public message: that of the sample is shown.
  async readTexts(kinds) {
    const unread = kinds
      .filter(
        (kind) =>
          kind.system === "jobs" &&
          kind.code === "handler_error" &&
          this.texts[keyOf(kind)]?.id !== kind.sample_job_id,
      )
      .slice(0, TEXTS);
    const jobs = await Promise.all(
      unread.map((kind) => getJob(kind.sample_job_id).catch(() => null)),
    );
    unread.forEach(
      (kind, i) =>
        (this.texts[keyOf(kind)] = {
          id: kind.sample_job_id,
          text: jobs[i] ? raised(jobs[i]) : "",
        }),
    );
  }

  async toggle(kind) {
    const name = keyOf(kind);
    this.open = this.open === name ? "" : name;
    this.sample = null;
    update();
    if (!this.open) return;
    try {
      this.sample = await SAMPLES[kind.system](kind);
    } catch (problem) {
      this.sample = problem.status === 404 ? "gone" : problem.message;
    }
    update();
  }

  // The stored jobs of a kind: how many, and what runs them again.
  async runnable(kind) {
    if (kind.system === "queues") {
      const ids = await this.queueJobsOf(kind);
      return [ids.length, () => each(ids, retryJob(kind.name), "submitted again")];
    }
    const { matched } = await retryMany(kind, { dryRun: true });
    return [matched, () => retryMany(kind)];
  }

  async queueJobsOf(kind) {
    const ids = [];
    let first = 0;
    for (let pages = 0; pages < PAGES && ids.length < kind.count && first != null; pages++) {
      const page = await listJobs(kind.name, { state: "failed", limit: 200, first });
      ids.push(
        ...page.jobs
          .filter((job) => job.name === kind.task && reasonFits(job.failed_reason, kind))
          .map((job) => job.id),
      );
      first = page.next;
    }
    return ids.slice(0, kind.count);
  }

  async again(kind) {
    this.busy = keyOf(kind);
    this.result = "";
    update();
    try {
      const [found, act] = await this.runnable(kind);
      if (!found) this.result = "None of these jobs is stored any more.";
      else {
        const fewer =
          found < kind.count
            ? ` ${plural(kind.count - found, "other")} of this kind cannot be found any more.`
            : "";
        const what =
          kind.system === "queues"
            ? `They wait in the queue ${kind.name} again, with the same data.`
            : `New ${kind.task} jobs with the same payloads; each failed job is run again once. The failed ones stay as they are.`;
        ask(
          `Run ${plural(found, "job")} again?`,
          what + fewer,
          async () => {
            const { done, already = 0, refusal } = await act();
            const before = already ? ` ${count(already)} had been run again before.` : "";
            this.result = refusal
              ? `${plural(done, "job")} submitted again; ${count(found - done - already)} not: ${refusal.message}`
              : `${plural(done, "job")} submitted again.${before}`;
            update();
          },
          { yes: `Run ${count(found)} again` },
        );
      }
    } catch (problem) {
      this.result = problem.message;
    }
    this.busy = "";
    update();
  }

  details(kind) {
    const { sample } = this;
    if (!sample) return html`<p class="muted small">Reading the sample…</p>`;
    const where = kind.worker
      ? html`<p class="small muted gap">${kind.count === 1 ? "It ran" : `All ${count(kind.count)} ran`} on <a class="link" href="#/workers">${shortWorker(kind.worker)}</a>.</p>`
      : nothing;
    if (typeof sample === "string")
      return html`<p class="muted small">${sample === "gone" ? "The sample job has expired." : sample}</p>${where}`;
    const ran = [
      sample.attempt && `attempt ${sample.attempt}`,
      sample.worker && shortWorker(sample.worker),
    ]
      .filter(Boolean)
      .join(", ");
    return html`<pre class="json" tabindex="0"><span class="muted">sample</span> <a class="link" href=${jobLink(kind.wire, kind.sample_job_id, {}, kind.name)}>${shortId(kind.sample_job_id)}</a> <span class="muted">${ran}${sample.ts ? html`${ran ? ", " : ""}${time(sample.ts, { day: true })} ${zone.name}` : nothing}</span>
${sample.code ?? "error"}: ${sample.message}${
      sample.trace
        ? html`
<span class="muted">${sample.trace}</span>`
        : nothing
    }</pre>${where}`;
  }

  kind(kind) {
    const open = this.open === keyOf(kind);
    const from = kind.by_hour.length === 1 ? "1 h ago" : "24 h ago";
    return html`<li><span class="c">${count(kind.count)}</span>
      <div class="what"><div class="row wrap"><a class="bold mono" role="button" href="#" aria-expanded=${open} @click=${(
        event,
      ) => {
        event.preventDefault();
        this.toggle(kind);
      }}>${kind.code || "error"}</a>${RUNS_AGAIN.has(kind.system) ? html`<span class="muted small">${kind.system === "queues" ? `queue ${kind.name}` : kind.name} ·</span>` : nothing}<a class="link small" href=${placeOf(kind, { state: "failed", task: kind.system === "jobs" ? kind.task : "" })}>${kind.task || "several tasks"}</a></div>
        ${this.texts[keyOf(kind)]?.text ? html`<div class="mono small">${this.texts[keyOf(kind)].text}</div>` : nothing}
        <div class="soft small">${kind.message || (kind.count > 1 && kind.system === "jobs" ? "several messages" : "")}</div></div>
      <div class="spread">${bars(
        kind.by_hour.map(() => 0),
        kind.by_hour,
        { width: 208, height: 26, label: `by hour: ${kind.by_hour.join(", ")}` },
      )}
        <div class="row tiny muted between"><span>${from}</span><span>now</span></div></div>
      <div class="small nowrap">last ${timeAgo(kind.last_ts)}<br class="wide" /> <span class="muted">first ${time(kind.first_ts, { day: true })}</span></div>
      <div class="right">${may("submit") && kind.task && RUNS_AGAIN.has(kind.system) ? html`<button class="btn slim" ?disabled=${this.busy === keyOf(kind)} @click=${() => this.again(kind)}>${icon("again")}Run ${count(kind.count)} again</button>` : nothing}</div>
      ${open ? html`<div class="more">${this.details(kind)}</div>` : nothing}</li>`;
  }

  view() {
    if (!this.body) return nothing;
    const { failures: kinds, count: failed, hours, scanned, total, unavailable } = this.body;
    const last = Math.floor(Date.now() / 3600e3) * 3600e3;
    const byHour = Array.from({ length: hours }, (_, i) =>
      kinds.reduce((n, kind) => n + kind.by_hour[i], 0),
    );
    return html`<div class="bar">${segments(
      [
        [1, "1 h"],
        [24, "24 h"],
      ],
      this.hours,
      (value) => go(link(["failures"], { hours: value === 1 ? 1 : "" })),
      "Period",
    )}
      <span class="grow"></span>${failed ? html`<span class="muted small">${count(failed)} failed, ${plural(kinds.length, "kind")}.</span>` : nothing}</div>
      ${unavailableView(unavailable)}
      ${this.result ? html`<p class="small soft gap" role="status">${this.result}</p>` : nothing}
      ${
        kinds.length
          ? html`<ul class="faults">${kinds.map((kind) => this.kind(kind))}</ul>
          <p class="muted small foot-note">Jobs are counted when they fail, for 24 h; of queues, those that are still stored. ${scanned < total ? `The newest ${count(scanned)} of ${count(total)} were looked at. ` : ""}In a message … stands for ids and long numbers.</p>
          ${
            hours > 1
              ? dataTable(
                  "By hour, as a table",
                  [`Hour, ${zone.name}`, "Failed"],
                  byHour.map((n, i) => [
                    clock(last - (hours - 1 - i) * 3600e3).slice(0, 5),
                    count(n),
                  ]),
                )
              : nothing
          }`
          : empty(
              `Nothing failed in the last ${hours === 1 ? "hour" : "24 h"}.`,
              "What fails in any system is grouped here by task, error code and message.",
            )
      }`;
  }
}

export const open = (route) => new Failures(route);
