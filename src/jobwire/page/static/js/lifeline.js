// A job's life from its events: four dots with real durations, and one bar for each attempt.
import { html, svg, nothing, icon, state, time } from "./ui.js";
import { duration, now, shortWorker } from "./format.js";

const ENDS = ["done", "error", "canceled"];
const SHAPE = { done: "done", error: "failed", canceled: "canceled" };
const REPORTS = (type) =>
  !["queued", "running", "retrying", "suspended", "gap", ...ENDS].includes(type);

// What a suspended job waits for.
export const waitText = (wait) =>
  !wait || wait.for === "sleep" ? "its time" : `${wait.for} ${wait.name}`;

// What the starts of a job are called: runs, where some of them did not count as attempts (it was
// suspended, or its worker was lost).
const startsOf = ({ attempts }) =>
  attempts.length > (attempts.at(-1)?.counted ?? attempts.length) ? "run" : "attempt";

// {submitted, leased, report, settled, attempts: [{number, counted, from, to, shape, code, next, steps}]}
export function lifeOf(job, events) {
  const life = {
    submitted: job.created_ts,
    leased: null,
    report: null,
    settled: null,
    attempts: [],
  };
  let open = null;
  const finish = (ts, shape, code = "") => {
    if (open) Object.assign(open, { to: ts, shape, code });
    open = null;
  };
  for (const event of events) {
    if (event.type === "running") {
      finish(event.ts, "failed", "worker lost");
      if (life.attempts.length) life.attempts.at(-1).next = event.ts;
      life.leased ??= event.ts;
      life.settled = null; // it runs again
      open = {
        number: life.attempts.length + 1,
        counted: event.data?.attempt,
        from: event.ts,
        to: null,
        shape: "running",
        code: "",
        steps: [],
      };
      life.attempts.push(open);
    } else if (event.type === "suspended")
      finish(event.ts, "scheduled", `waits for ${waitText(event.data)}`);
    else if (event.type === "retrying") finish(event.ts, "failed", event.data?.error?.code);
    else if (event.type === "queued") finish(event.ts, "canceled", event.data?.code ?? "released");
    else if (ENDS.includes(event.type)) {
      life.settled = event.ts;
      finish(event.ts, SHAPE[event.type], event.type === "error" ? event.data?.code : "");
    } else if (REPORTS(event.type)) {
      life.report = event.ts;
      if (event.type === "step_done") open?.steps.push({ ...event.data, to: event.ts });
    }
  }
  return life;
}

const dot = (cls, shape, tone, title, when, text) =>
  html`<li class=${cls}><svg class=${tone} aria-hidden="true"><use href="#${shape}"></use></svg>
  <b>${title}</b><span class="when">${when}</span>${text ? html`<i>${text}</i>` : nothing}</li>`;

export function lifeline(job, life, { noWorker }) {
  const at = (ts) => time(ts, { ms: true });
  const wait = now() - life.submitted;
  const over = life.settled !== null || ENDS.includes(job.status);
  const end = life.settled ?? job.updated_ts;
  const first = job.due_ts
    ? dot(
        "now",
        "done",
        "done",
        "Submitted",
        at(life.submitted),
        `due in ${duration(job.due_ts - now())}`,
      )
    : life.leased
      ? dot(
          "",
          "done",
          "done",
          "Submitted",
          at(life.submitted),
          `waited ${duration(life.leased - life.submitted)}`,
        )
      : dot(
          over ? "todo" : noWorker ? "stuck" : "now",
          "done",
          "done",
          "Submitted",
          at(life.submitted),
          over ? "" : `waiting ${duration(wait)}`,
        );
  const leased = life.leased
    ? dot(
        "",
        "done",
        "done",
        "Started",
        at(life.leased),
        life.attempts.length > 1
          ? `${life.attempts.length} ${startsOf(life)}s`
          : shortWorker(job.worker)
            ? "1 attempt"
            : "",
      )
    : dot(
        "todo",
        "waiting",
        "muted",
        "Started",
        over ? "never" : noWorker ? "no worker" : "not yet",
        "",
      );
  const running = !over && job.status === "running";
  const ran = life.leased ? duration((over ? end : now()) - life.leased) : "";
  const reported = life.report
    ? dot(
        running ? "now" : over ? "" : "todo",
        running ? "running" : "done",
        running ? "running pulse" : "done",
        over ? "Reported" : "Reporting",
        at(life.report),
        running ? `${ran} so far` : over ? ran : "",
      )
    : dot(
        running ? "now" : over && life.leased ? "" : "todo",
        running ? "running" : over && life.leased ? "canceled" : "waiting",
        running ? "running pulse" : "muted",
        over ? "Reported" : "Reporting",
        running ? "no report yet" : over && life.leased ? "nothing" : "not yet",
        running ? `${ran} so far` : over ? ran : "",
      );
  const shape = SHAPE[job.status] ?? "waiting";
  const settled = over
    ? dot("", shape, shape, "Ended", at(end), "")
    : dot("todo", "waiting", "muted", "Ended", "not yet", "");
  return html`<ol class="life" aria-label="Lifeline">${first}${leased}${reported}${settled}</ol>`;
}

const MARKS = 3;
export function attemptsView(job, life) {
  const { attempts } = life;
  if (!attempts.length) return nothing;
  const begin = attempts[0].from;
  const end = Math.max(begin + 1, life.settled ?? now(), job.due_ts ?? 0);
  const x = (ts) => `${(((ts - begin) / (end - begin)) * 100).toFixed(2)}%`;
  const wide = (from, to) => `${Math.max(0.4, ((to - from) / (end - begin)) * 100).toFixed(2)}%`;
  const shown = attempts.slice(-12);
  const word = startsOf(life);
  const name = word === "run" ? "Run" : "Attempt";
  return html`<div class="attempts">${attempts.length > shown.length ? html`<p class="muted tiny">The last ${shown.length} of ${attempts.length} ${word}s</p>` : nothing}
    ${shown.map((each) => {
      const to = each.to ?? now();
      const next =
        each.next ?? (each === attempts.at(-1) && !life.settled && each.to ? now() : null);
      return html`<div class="attempt"><b class="bold">${name} ${each.number}</b>
        <svg role="img" aria-label="${name} ${each.number}: ${each.shape} after ${duration(to - each.from)}">
          ${svg`<rect class=${each.shape} x=${x(each.from)} y="9" width=${wide(each.from, to)} height="10" rx="3"></rect>
          ${(each.steps ?? []).map((step) => svg`<rect class="step" x=${x(step.to - step.ms)} y="11.5" width=${wide(step.to - step.ms, step.to)} height="5"><title>${step.name}: ${duration(step.ms)}</title></rect>`)}
          ${next && each.to ? svg`<line class=${each.shape === "scheduled" ? "wait" : ""} x1=${x(each.to)} x2=${x(next)} y1="14" y2="14"></line>` : nothing}
          ${each.shape === "running" ? svg`<line class="cursor" x1=${x(to)} x2=${x(to)} y1="3" y2="25"></line>` : nothing}`}
        </svg><span>${state(each.shape, duration(to - each.from))}<span class="muted cut">${each.code}${each === attempts.at(-1) && job.worker ? ` on ${shortWorker(job.worker)}` : ""}</span></span></div>`;
    })}
    <div class="attempt axis"><span></span><span class="row between">${Array.from({ length: MARKS + 1 }, (_, i) => html`<span>${duration(((end - begin) * i) / MARKS)}</span>`)}</span><span></span></div></div>`;
}

const EVENT_SHAPES = {
  queued: "waiting",
  running: "running",
  retrying: "scheduled",
  suspended: "scheduled",
  ...SHAPE,
};
// A type of an event with its shape and colour.
export const eventName = (type) => {
  const shape = EVENT_SHAPES[type];
  const tone = shape ?? (type === "log" ? "muted" : "running");
  return html`<span class="st ${tone}">${shape ? icon(shape, "") : nothing}${type}</span>`;
};
