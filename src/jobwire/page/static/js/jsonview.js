// The tabs of a job that show JSON, and stack traces.
import { html, nothing, icon, copyButton } from "./ui.js";
import { update } from "./store.js";
import { pretty } from "./json.js";
import { count } from "./format.js";

const SHOWN = 20000;
const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

// The text in coloured spans. It is text for the browser too, whatever it contains.
function coloured(whole) {
  const text = whole.slice(0, SHOWN);
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    parts.push(text.slice(at, found.index));
    const [all, string, colon] = found;
    if (string && colon) parts.push(html`<span class="k">${string}</span>${colon}`);
    else parts.push(html`<span class=${string ? "q" : "v"}>${all}</span>`);
    at = found.index + all.length;
  }
  parts.push(text.slice(at));
  const cut = whole.length - text.length;
  return html`<pre class="json" tabindex="0">${parts}${cut > 0 ? "…" : ""}</pre>
    ${cut > 0 ? html`<p class="muted small">${count(cut)} more characters: copy has all of it.</p>` : nothing}`;
}

// A value as JSON; secrets are dotted until the reader asks for them.
export function jsonTab(screen, value, label) {
  const [whole, hidden] = [pretty(value), pretty(value, { hide: true })];
  const secrets = whole !== hidden;
  const flip = () => {
    screen.showSecrets = !screen.showSecrets;
    update();
  };
  return html`<div class="tabhead"><span class="muted small grow">${label}${secrets && !screen.showSecrets ? " Secrets are dotted." : ""}</span>
    ${secrets ? html`<button class="btn slim" aria-pressed=${screen.showSecrets} @click=${flip}>${screen.showSecrets ? "Hide secrets" : "Show secrets"}</button>` : nothing}
    ${copyButton(whole)}</div>${coloured(screen.showSecrets ? whole : hidden)}`;
}

export const stackView = (title, text) =>
  html`<details class="key" open><summary>${icon("chevron")}${title}</summary>
  <pre tabindex="0">${text}</pre><p class="gap">${copyButton(text, `Copy ${title.toLowerCase()}`)}</p></details>`;
