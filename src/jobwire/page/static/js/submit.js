// The sheet that submits a job, from any screen: with an example, or with a job's payload to edit.
import { html, nothing, health } from "./ui.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { app, may, update } from "./store.js";
import { get, post } from "./api.js";
import { show, close } from "./dialog.js";
import { plural } from "./format.js";
import { pretty } from "./json.js";
import { go, jobLink } from "./router.js";
import {
  asCurl,
  given,
  jsonFault,
  jsonField,
  optionFields,
  refusalOf,
  set,
  sheet,
} from "./sheet.js";

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
  Object.assign(form, {
    options: {},
    key: newKey(),
    follow: true,
    tasks: null,
    error: "",
    busy: false,
  });
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

const fault = () => jsonFault(form.text, { most: MAX_BYTES, object: true });

// The payload goes out as it was typed: no number is rounded.
const body = () =>
  `{${[`"task":${JSON.stringify(form.task)}`, `"payload":${form.text}`, ...given(form.options)].join(",")}}`;

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
    form.error = refusalOf(problem);
    form.busy = false;
  }
  update();
}

export async function submitExample(name) {
  const { tasks } = await get("/v1/tasks");
  const found =
    tasks.find((each) => each.name === name) ?? tasks.find((each) => each.live) ?? tasks[0];
  const text = JSON.stringify({ task: found.name, payload: found.example ?? {} });
  go(jobLink("streams", (await post("/v1/jobs", text)).job_id));
}

function taskLine() {
  const row = app.overview?.systems.find((each) => each.system === "jobs");
  if (!task()) return nothing;
  if (!task().live) return health("warn", "No live worker has it: the job waits for one.");
  const { workers, queue } = task();
  const queued = row?.queues?.find((each) => each.name === queue);
  if (queued?.paused) return health("pause", `The queue ${queue} is paused: the job waits.`);
  return health(
    "ok",
    workers
      ? `${plural(workers, "worker")} ${workers === 1 ? "has" : "have"} it, queue ${queue}`
      : "A worker of another program may have it.",
  );
}

function view() {
  const wrong = form.tasks ? fault() : "";
  const example = html`<button type="button" class="btn ghost slim" @click=${sample}>Example</button>`;
  return sheet(form, {
    title: "Submit a job",
    act: "Submit",
    disabled: !!wrong || !form.tasks,
    send,
    curl: wrong ? "" : asCurl("/v1/jobs", body(), form.key && `Idempotency-Key: ${form.key}`),
    body: html`<label class="field"><span>Task</span>
        <select name="task" @change=${(event) => choose(event.target.value)} .value=${live(form.task)}>
          ${(form.tasks ?? []).map((each) => html`<option ?selected=${each.name === form.task}>${each.name}</option>`)}
          ${form.tasks && !task() ? html`<option selected>${form.task}</option>` : nothing}
        </select>
        <span class="tiny">${taskLine()}</span></label>
      ${jsonField(form, { label: "Payload", wrong, right: "A JSON object", most: MAX_BYTES, ready: !!form.tasks, act: example })}
      ${optionFields(form, OPTIONS)}
      <label class="field"><span>Idempotency key</span>
        <input class="mono" spellcheck="false" .value=${live(form.key)} @input=${set(form, "key")} /></label>`,
  });
}
