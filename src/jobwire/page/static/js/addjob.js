// The sheet that adds a job to a queue: empty, or with a job's data and options to edit.
import { html } from "./ui.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { may, update } from "./store.js";
import { post } from "./api.js";
import { show, close } from "./dialog.js";
import { pretty } from "./json.js";
import { go } from "./router.js";
import { pollNow } from "./poll.js";
import { queueJobLink, queuePath } from "./queues.js";
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

const MAX_BYTES = 10 * 1024 * 1024;
const OPTIONS = [
  ["attempts", "Attempts", "1"],
  ["delay", "Delay, ms", "none"],
  ["priority", "Priority", "none"],
  ["backoff", "Backoff, ms", "none"],
];

let form = null;

export function openAdd({ queue = "", name = "", data = {}, opts = {} } = {}) {
  if (!may("submit")) return;
  const { attempts = "", priority = "", backoff = "" } = opts;
  const options = {
    attempts,
    priority: priority || "",
    backoff: typeof backoff === "number" ? backoff : "",
  };
  for (const option in options) options[option] = String(options[option]);
  form = {
    queue,
    name,
    text: pretty(data),
    options,
    jobId: "",
    follow: true,
    error: "",
    busy: false,
  };
  // A backoff that is more than a number is kept as it is.
  form.more = typeof backoff === "object" ? [`"backoff":${JSON.stringify(backoff)}`] : [];
  show(view, { cls: "sheet", label: "Add a job" });
}

const fault = () => jsonFault(form.text, { most: MAX_BYTES });
const path = () => queuePath(form.queue, "/jobs");

// The data goes out as it was typed: no number is rounded.
function body() {
  const more = form.options.backoff ? [] : form.more;
  const opts = [
    ...given(form.options),
    ...more,
    ...(form.jobId ? [`"jobId":${JSON.stringify(form.jobId)}`] : []),
  ];
  return `{"name":${JSON.stringify(form.name)},"data":${form.text},"opts":{${opts.join(",")}}}`;
}

async function send(event) {
  event?.preventDefault();
  if (fault() || form.busy || !form.queue || !form.name) return;
  form.busy = true;
  form.error = "";
  update();
  try {
    const [job] = (await post(path(), body())).jobs;
    const { follow, queue } = form;
    if (job.outcome === "added") {
      close();
      if (follow) go(queueJobLink(queue, job.id));
      else pollNow();
      return;
    }
    form.error = html`Nothing was added: the job <a class="link" href=${queueJobLink(queue, job.id)} @click=${close}>${job.id}</a> has this id already.`;
  } catch (problem) {
    form.error = refusalOf(problem);
  }
  form.busy = false;
  update();
}

const text = (name, label, hint = "") =>
  html`<label class="field"><span>${label}</span>
  <input name=${name} class="mono" spellcheck="false" autocomplete="off" placeholder=${hint} .value=${live(form[name])} @input=${set(form, name)} /></label>`;

function view() {
  const wrong = fault();
  return sheet(form, {
    title: "Add a job",
    act: "Add",
    disabled: !!wrong || !form.queue || !form.name,
    send,
    curl: wrong || !form.queue || !form.name ? "" : asCurl(path(), body()),
    body: html`<div class="pair">${text("queue", "Queue", "mail")}${text("name", "Job name", "send")}</div>
      ${jsonField(form, { label: "Data", wrong, right: "JSON", most: MAX_BYTES })}
      ${optionFields(form, OPTIONS)}${text("jobId", "Job id", "made by the queue")}`,
  });
}
