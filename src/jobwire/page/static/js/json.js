// JSON with numbers kept digit for digit, secrets dotted, and a coloured view.
import { html } from "../vendor/lit-html/lit-html.js";

const SECRET = /pass(word|wd|phrase)|secret|token|api[_-]?key|authorization|credential|private[_-]?key/i;
const DOTS = "••••••••";
const SHOWN = 20000;

// A number that JavaScript would round.
class Exact {
  constructor(text) {
    this.text = text;
  }
}

export const parse = (text) =>
  JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source && String(value) !== context.source
      ? keep(value, context.source)
      : value,
  );

// 1.0 and 1e3 are the same number in other words: only what would lose digits is kept as text.
const keep = (value, source) =>
  Number.isSafeInteger(value) && Number(source) === value && !/[.eE]/.test(source)
    ? value
    : new Exact(source);

export function pretty(value, { hide = false, indent = "" } = {}) {
  if (value instanceof Exact) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = indent + "  ";
  const entries = Array.isArray(value)
    ? value.map((each) => pretty(each, { hide, indent: inner }))
    : Object.entries(value).map(([name, each]) => {
        const dotted = hide && SECRET.test(name) && each !== null && each !== "";
        const text = dotted ? `"${DOTS}"` : pretty(each, { hide, indent: inner });
        return `${JSON.stringify(name)}: ${text}`;
      });
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return open + close;
  return `${open}\n${inner}${entries.join(`,\n${inner}`)}\n${indent}${close}`;
}

export const compact = (value) => {
  if (value instanceof Exact) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(compact).join(",")}]`;
  const entries = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}:${compact(each)}`);
  return `{${entries.join(",")}}`;
};

// The same for a text that may be JSON: a field of the wire.
const IN_TEXT = new RegExp(`("[^"]*(?:${SECRET.source})[^"]*"\\s*:\\s*)"(?:\\\\.|[^"\\\\])*"`, "gi");
export const dotted = (text) => text.replace(IN_TEXT, `$1"${DOTS}"`);

export const hasSecrets = (value) => pretty(value, { hide: true }) !== pretty(value);

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

// The text in spans. It is text for the browser too, whatever it contains.
export function view(value, { hide = true } = {}) {
  const whole = pretty(value, { hide });
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
    ${cut > 0 ? html`<p class="muted small">${cut} more characters: copy has all of it.</p>` : ""}`;
}
