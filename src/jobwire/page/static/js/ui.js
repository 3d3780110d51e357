// The parts that all screens are made of.
import { html, svg, nothing } from "../vendor/lit-html/lit-html.js";
import { count, shortId, moment, clock, iso, zone, now, age } from "./format.js";
import { announce, update } from "./store.js";

export { html, svg, nothing };

export const icon = (name, cls = "ic") =>
  html`<svg class=${cls} aria-hidden="true"><use href="#${name}"></use></svg>`;

const WORDS = {
  waiting: "Waiting",
  scheduled: "Scheduled",
  running: "Running",
  done: "Done",
  failed: "Failed",
  canceled: "Canceled",
};

// The API's states in the page's words; a delayed job waits for its time.
export const stateOf = (job) =>
  ({ queued: job.due_ts ? "scheduled" : "waiting", error: "failed" })[job.status] ?? job.status;
export const word = (state) => WORDS[state] ?? state;
export const ended = (job) => ["done", "error", "canceled"].includes(job.status);

export const state = (name, text = word(name)) =>
  html`<span class="st ${name}">${icon(name, "")}${text}</span>`;
export const health = (name, text) => {
  const cls =
    { ok: "running", behind: "warn", warn: "warn", pause: "warn", failed: "failed" }[name] ??
    "waiting";
  return html`<span class="st ${cls}">${icon(name, "")}${text}</span>`;
};

export const number = (n) => (n ? count(n) : html`<span class="zero">0</span>`);

export const time = (ts, { ms = false, day = false } = {}) =>
  html`<time datetime=${iso(ts)} title="${iso(ts)}"
    >${day ? moment(ts) : clock(ts, ms)}</time
  >`;
export const timeAgo = (ts) =>
  html`<time datetime=${iso(ts)} title="${moment(ts)} ${zone.name}"
    >${age(now() - ts)} ago</time
  >`;

let copied = null;
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without permission, or not a secure context: by a selection.
    const area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  copied = text;
  announce("Copied.");
  update();
  setTimeout(() => {
    copied = null;
    update();
  }, 1500);
}

export const copy = (text, label, cls = "copy") =>
  html`<button
    type="button"
    class=${cls}
    aria-label="Copy ${label}"
    title="Copy ${label}"
    @click=${(event) => {
      event.stopPropagation();
      event.preventDefault();
      copyText(text);
    }}
  >${icon(copied === text ? "check" : "copy")}</button>`;

export const command = (text) =>
  html`<span class="cmd"><code tabindex="0">${text}</code>${copy(text, "command", "")}</span>`;

export const copyButton = (text, label = "Copy") =>
  html`<button type="button" class="btn slim" @click=${() => copyText(text)}>
    ${icon(copied === text ? "check" : "copy")}${label}
  </button>`;

export const id = (text) => html`<span class="mono muted" title=${text}>${shortId(text)}</span>`;

const track = (percent) =>
  html`<svg class="track" aria-hidden="true"
    ><rect width="${Math.min(100, Math.max(0, percent))}%" height="100%" rx="2"></rect
  ></svg>`;

export const meter = (percent, text = "") =>
  html`<span class="meter">${track(percent)}<b class="bold">${Math.round(percent)} %</b
    >${text ? html`<span class="soft">${text}</span>` : nothing}</span>`;

// A progress report as a percentage, if it has one; a percentage is never guessed.
export const percentOf = (progress) =>
  typeof progress?.percent === "number" ? progress.percent : null;

export const segments = (options, chosen, choose, label) =>
  html`<div class="seg" role="group" aria-label=${label}>
    ${options.map(
      ([value, text]) =>
        html`<button type="button" aria-pressed=${value === chosen} @click=${() => choose(value)}>
          ${text}
        </button>`,
    )}
  </div>`;

// A click anywhere in a row opens its link, unless it was on a control or text is selected.
export function openRow(event) {
  if (event.target.closest("a, button, input, label") || String(getSelection())) return;
  event.currentTarget.querySelector("a")?.click();
}

export const empty = (title, text, ...acts) =>
  html`<div class="empty"><h2>${title}</h2><p>${text}</p>
    <div class="row wrap">${acts}</div></div>`;

// Why an act was refused, in the server's words.
export const refusalView = (text) =>
  text
    ? html`<div class="notice bad gap" role="alert">${icon("warn")}<div>${text}</div></div>`
    : nothing;
