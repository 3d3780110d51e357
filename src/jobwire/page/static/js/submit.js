// The sheet that submits a job, from any screen: with an example, or with a job's payload to edit.
import { html, icon, nothing, health, copyButton } from "./ui.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { app, may, update } from "./store.js";
import { get, post } from "./api.js";
import { show, close } from "./dialog.js";
import { count, plural, quoted, size } from "./format.js";
import { pretty } from "./json.js";
import { go, jobLink } from "./router.js";

const MAX_BYTES = 204800;
const OPTIONS = [
  ["max_attempts", "Attempts", "default"],
  ["timeout_s", "Time limit, s", "default"],
  ["delay_s", "Delay, s", "none"],
  ["ttl_s", "Time to live, s", "86400"],
];

let form = null;

const newKey = () => `page-${crypto.getRandomValues(new Uint32Array(2)).join("").slice(0, 12)}`;

export async function openSubmit({ task = "", payload = null } = {}) {
  if (!may("submit")) return;
  form = { task, text: payload === null ? "" : pretty(payload), edited: payload !== null };
  Object.assign(form, { options: {}, key: newKey(), follow: true, tasks: null, error: "", busy: false });
  show(view, { cls: "sheet", label: "Submit a job" });
  try {
    form.tasks = (await get("/v1/tasks")).tasks;
    const first = form.tasks.find((each) => each.live) ?? form.tasks[0];
    choose(form.task || first?.name || "");
  } catch (problem) {
    form.tasks = [];
    form.error = problem.message;
  }
  update();
}

const task = () => form.tasks?.find((each) => each.name === form.task);

function choose(name) {
  form.task = name;
  if (!form.edited) form.text = pretty(task()?.example ?? {});
  update();
}

function sample() {
  form.edited = false;
  choose(form.task);
}

// What is wrong with the text; empty if nothing is.
function fault() {
  if (size(form.text) > MAX_BYTES) return `At most ${count(MAX_BYTES)} bytes`;
  try {
    const value = JSON.parse(form.text);
    return value && typeof value === "object" && !Array.isArray(value) ? "" : "It must be an object: {…}";
  } catch (error) {
    return `Not JSON: ${error.message.replace(/^.*?JSON\.parse: |\(.*$/g, "")}`;
  }
}

// The payload goes out as it was typed: no number is rounded.
function body() {
  const options = Object.entries(form.options)
    .filter(([, text]) => text.trim() !== "")
    .map(([name, text]) => `,${JSON.stringify(name)}:${Number.isFinite(+text) ? +text : JSON.stringify(text)}`);
  return `{"task":${JSON.stringify(form.task)},"payload":${form.text}${options.join("")}}`;
}

const asCurl = () =>
  `curl ${location.origin}/v1/jobs -H 'Content-Type: application/json'` +
  (form.key ? ` -H ${quoted(`Idempotency-Key: ${form.key}`)}` : "") +
  (app.me?.signed_in ? ` -H "Authorization: Bearer $JOBWIRE_API_KEY"` : "") +
  ` -d ${quoted(body())}`;

async function send(event) {
  event?.preventDefault();
  if (fault() || form.busy) return;
  form.busy = true;
  form.error = "";
  update();
  try {
    const job = await post("/v1/jobs", body(), form.key ? { "idempotency-key": form.key } : {});
    const follow = form.follow;
    close();
    if (follow) go(jobLink("streams", job.job_id));
  } catch (problem) {
    const places = problem.document.errors?.map((each) => `${each.pointer}: ${each.message}`);
    form.error = places?.length ? places.join("; ") : problem.message;
    form.busy = false;
  }
  update();
}

export async function submitExample(name) {
  const { tasks } = await get("/v1/tasks");
  const found = tasks.find((each) => each.name === name) ?? tasks.find((each) => each.live) ?? tasks[0];
  const text = JSON.stringify({ task: found.name, payload: found.example ?? {} });
  go(jobLink("streams", (await post("/v1/jobs", text)).job_id));
}

function taskLine() {
  const row = app.overview?.systems.find((each) => each.system === "jobs");
  if (!task()) return nothing;
  if (!task().live) return health("warn", "No live worker has it: the job waits for one.");
  return health("ok", `${plural(row?.workers ?? 0, "worker")}, ${row?.running ?? 0} of ${row?.slots ?? 0} slots in use`);
}

const set = (name) => (event) => {
  form[name] = event.target.type === "checkbox" ? event.target.checked : event.target.value;
  if (name === "text") form.edited = true;
  update();
};

function onKey(event) {
  if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) send(event);
}

function view() {
  const wrong = form.tasks ? fault() : "";
  return html`<form @submit=${send} @keydown=${onKey}>
    <header>
      <h2 class="grow">Submit a job</h2><kbd>esc</kbd>
      <button type="button" class="btn ghost square" aria-label="Close" @click=${close}>${icon("close")}</button>
    </header>
    <div class="body">
      <label class="field"><span>Task</span>
        <select name="task" @change=${(event) => choose(event.target.value)} .value=${live(form.task)}>
          ${(form.tasks ?? []).map((each) => html`<option ?selected=${each.name === form.task}>${each.name}</option>`)}
          ${form.tasks && !task() ? html`<option selected>${form.task}</option>` : nothing}
        </select>
        <span class="tiny">${taskLine()}</span>
      </label>
      <div class="field">
        <span class="row between"><label for="payload">Payload</label>
          <button type="button" class="btn ghost slim" @click=${sample}>Example</button></span>
        <textarea id="payload" rows="9" spellcheck="false" .value=${live(form.text)} @input=${set("text")}
          aria-describedby="fault"></textarea>
        <span class="row between tiny muted wrap">
          <span id="fault">${!form.tasks ? "" : wrong ? health("failed", wrong) : health("ok", "A JSON object")}</span>
          <span>${count(size(form.text))} of ${count(MAX_BYTES)} bytes</span>
        </span>
      </div>
      <div class="pair">
        ${OPTIONS.map(
          ([name, label, hint]) => html`<label class="field"><span>${label}</span>
            <input inputmode="decimal" name=${name} placeholder=${hint} .value=${live(form.options[name] ?? "")}
              @input=${(event) => {
                form.options[name] = event.target.value;
                update();
              }} /></label>`,
        )}
      </div>
      <label class="field"><span>Idempotency key</span>
        <input class="mono" spellcheck="false" .value=${live(form.key)} @input=${set("key")} /></label>
      ${form.error
        ? html`<div class="notice bad" role="alert">${icon("warn")}<div>${form.error}</div></div>`
        : nothing}
      <details class="key"><summary>${icon("chevron")}As curl<span class="grow"></span></summary>
        <pre class="json" tabindex="0">${wrong ? "" : asCurl()}</pre>
        <p class="gap">${copyButton(asCurl(), "Copy the command")}</p></details>
    </div>
    <footer>
      <label class="row small grow"><input type="checkbox" .checked=${live(form.follow)} @change=${set("follow")} />Follow it</label>
      <button type="button" class="btn" @click=${close}>Cancel</button>
      <button class="btn primary" ?disabled=${!!wrong || form.busy || !form.tasks}>Submit<kbd>⌘↵</kbd></button>
    </footer>
  </form>`;
}
