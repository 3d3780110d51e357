// The parts that the screens of single jobs have in common.
import { html, nothing, icon, copyButton } from "./ui.js";
import { update } from "./store.js";
import { bytes, count, duration, size } from "./format.js";
import { compact, dotted, hasSecrets, pretty, view } from "./json.js";

const MOST_EVENTS = 200;
const DIGITS = "Numbers are shown digit for digit.";

export const refusalView = (text) =>
  text ? html`<div class="notice bad gap" role="alert">${icon("warn")}<div>${text}</div></div>` : nothing;

// [[name, value], …]; false entries are left out.
export const facts = (rows) => html`<aside class="rail" aria-label="Facts"><dl>${rows.filter(Boolean).map(
  ([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`,
)}</dl></aside>`;

// [[id, label, small text], …]
export const tabs = (entries, current, href) => html`<nav class="tabs jobtabs" aria-label="Job">${entries.map(
  ([id, label, note]) => html`<a href=${href(id)} aria-current=${id === current ? "true" : nothing}>${label}${note ? html`<span class="n">${note}</span>` : nothing}</a>`,
)}</nav>`;

export const sizeOf = (value) => bytes(size(compact(value)));

// A value as JSON; secrets are dotted until the reader asks for them.
export function jsonTab(screen, value, label = `${sizeOf(value)}. ${DIGITS}`) {
  const secrets = hasSecrets(value);
  const flip = () => {
    screen.showSecrets = !screen.showSecrets;
    update();
  };
  return html`<div class="tabhead"><span class="muted small grow">${label}${secrets && !screen.showSecrets ? " Secrets are dotted." : ""}</span>
    ${secrets ? html`<button class="btn slim" aria-pressed=${screen.showSecrets} @click=${flip}>${screen.showSecrets ? "Hide secrets" : "Show secrets"}</button>` : nothing}
    ${copyButton(pretty(value))}</div>${view(value, { hide: !screen.showSecrets })}`;
}

export const stackView = (title, text) => html`<details class="key" open><summary>${icon("chevron")}${title}</summary>
  <pre tabindex="0">${text}</pre><p class="gap">${copyButton(text, `Copy ${title.toLowerCase()}`)}</p></details>`;

// Rows of events, the oldest first; `all` of the screen shows more than the last ones.
export function eventsView(screen, { rows, head, first, name, data, by = nothing }) {
  const list = screen.all ? rows : rows.slice(-MOST_EVENTS);
  const more = rows.length > list.length;
  const showAll = () => {
    screen.all = true;
    update();
  };
  return html`<div class="tabhead">${head}
      <span class="muted small grow">${more ? `The last ${list.length} rows. ` : ""}Oldest first, each event once.</span>
      ${more ? html`<button class="btn slim" @click=${showAll}>Show ${count(rows.length)}</button>` : nothing}
      ${copyButton(JSON.stringify(screen.events.map(({ id, type, ts, step, data }) => ({ id, type, ts, step, data }))))}</div>
    <table class="events"><thead class="vh"><tr><th>After</th><th>Type</th>${by === nothing ? nothing : html`<th>Written by</th>`}<th>Data</th></tr></thead><tbody>
    ${list.map((event, i) => html`<tr><td class="right muted">${event.ts === first ? "0" : `+${duration(event.ts - first)}`}</td><td>${name(event)}</td>
      ${by === nothing ? nothing : html`<td class="muted mono wide">${by(event)}</td>`}<td class="data">${data(event, i === list.length - 1)}</td></tr>`)}</tbody></table>`;
}

export const eventData = (event) => html`<code class="soft">${dotted(typeof event.data === "string" ? event.data : compact(event.exact ?? event.data))}</code>`;
