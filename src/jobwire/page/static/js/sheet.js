// The parts of a sheet that sends a job: JSON to edit, options, the same as curl.
import { html, icon, nothing, health, copyButton } from "./ui.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { app, update } from "./store.js";
import { close } from "./dialog.js";
import { count, quoted, size } from "./format.js";

const SEND_KEYS = /^(Mac|iP)/.test(navigator.platform) ? "⌘↵" : "Ctrl ↵";

// What is wrong with the text; empty if nothing is.
export function jsonFault(text, { most, object = false }) {
  if (size(text) > most) return `At most ${count(most)} bytes`;
  try {
    const value = JSON.parse(text);
    return !object || (value && typeof value === "object" && !Array.isArray(value))
      ? ""
      : "It must be an object: {…}";
  } catch (error) {
    return `Not JSON: ${error.message.replace(/^.*?JSON\.parse: |\(.*$/g, "")}`;
  }
}

export const set = (form, name) => (event) => {
  form[name] = event.target.type === "checkbox" ? event.target.checked : event.target.value;
  if (name === "text") form.edited = true;
  update();
};

// Options that were given, as members of a JSON object: numbers where they are.
export const given = (options) =>
  Object.entries(options)
    .filter(([, text]) => text.trim() !== "")
    .map(
      ([name, text]) =>
        `${JSON.stringify(name)}:${Number.isFinite(+text) ? +text : JSON.stringify(text)}`,
    );

export const asCurl = (path, body, header = "") =>
  `curl ${location.origin}${path} -H 'Content-Type: application/json'` +
  (header ? ` -H ${quoted(header)}` : "") +
  (app.me?.signed_in ? ` -H "Authorization: Bearer $JOBWIRE_API_KEY"` : "") +
  ` -d ${quoted(body)}`;

// What a refusal says, with the places that it names.
export function refusalOf(problem) {
  const places = problem.document.errors?.map((each) => `${each.pointer}: ${each.message}`);
  return places?.length ? places.join("; ") : problem.message;
}

export const jsonField = (form, { label, wrong, right, most, ready = true, act = nothing }) =>
  html`<div class="field">
  <span class="row between"><label for="payload">${label}</label>${act}</span>
  <textarea id="payload" rows="9" spellcheck="false" .value=${live(form.text)} @input=${set(form, "text")} aria-describedby="fault"></textarea>
  <span class="row between tiny muted wrap">
    <span id="fault">${!ready ? "" : wrong ? health("failed", wrong) : health("ok", right)}</span>
    <span>${count(size(form.text))} of ${count(most)} bytes</span></span></div>`;

export const optionFields = (form, options) =>
  html`<div class="pair">${options.map(
    ([name, label, hint]) =>
      html`<label class="field"><span>${label}</span>
    <input inputmode="decimal" name=${name} placeholder=${hint} .value=${live(form.options[name] ?? "")} @input=${set(form.options, name)} /></label>`,
  )}</div>`;

export const sheet = (form, { title, act, disabled, send, curl, body }) =>
  html`<form
    @submit=${send} @keydown=${(event) => event.key === "Enter" && (event.metaKey || event.ctrlKey) && send(event)}>
  <header><h2 class="grow">${title}</h2><kbd>esc</kbd>
    <button type="button" class="btn ghost square" aria-label="Close" @click=${close}>${icon("close")}</button></header>
  <div class="body">${body}
    ${form.error ? html`<div class="notice bad" role="alert">${icon("warn")}<div>${form.error}</div></div>` : nothing}
    <details class="key"><summary>${icon("chevron")}As curl<span class="grow"></span></summary>
      <pre class="json" tabindex="0">${curl}</pre><p class="gap">${copyButton(curl, "Copy the command")}</p></details></div>
  <footer><label class="row small grow"><input type="checkbox" .checked=${live(form.follow)} @change=${set(form, "follow")} />Follow it</label>
    <button type="button" class="btn" @click=${close}>Cancel</button>
    <button class="btn primary" ?disabled=${disabled || form.busy}>${act}<kbd>${SEND_KEYS}</kbd></button></footer></form>`;
