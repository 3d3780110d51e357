// The tab Result of a queue's job: what it returned, or why it failed; and a job that is gone.
import { html, nothing, command, empty } from "./ui.js";
import { jsonPart } from "./jobview.js";
import { queueLink } from "./queues.js";

const STACKS = 10;

export function resultView(screen) {
  const { job, queue } = screen;
  if (job.state === "completed") return screen.jsonView(job.returnvalue);
  const failed = job.state === "failed";
  const stacks = job.stacktrace.filter((text) => text.trim() !== job.failed_reason);
  const title = (i) =>
    stacks.length > 1 ? `Stack trace ${stacks.length - i} of ${stacks.length}` : "Stack trace";
  return html`<div class="gap"><p><b class="bold ${failed ? "failed" : "warn"}">${failed ? "Failed" : "The last attempt failed"}</b></p><pre class="json gap" tabindex="0">${job.failed_reason}</pre>
    ${failed ? html`<p class="muted small gap"><a class="link" href=${queueLink(queue, { state: "failed" })}>Other failed jobs of ${queue}</a></p>` : nothing}</div>
    ${
      stacks.length
        ? jsonPart(({ stackView }) =>
            stacks
              .slice(-STACKS)
              .reverse()
              .map((text, i) => stackView(title(i), text)),
          )
        : nothing
    }`;
}

export function goneView({ job, queue, id }) {
  const rule =
    "BullMQ deletes ended jobs by removeOnComplete and removeOnFail, and others when they are removed.";
  return empty(
    job ? "This job is removed." : "No such job.",
    job ? `Its last state was ${job.state}. ${rule}` : `${rule} Another tenant's job is not shown.`,
    html`<a class="btn" href=${queueLink(queue)}>${queue}</a>`,
    command(`jobwire queue job ${queue.replace(/[^\w.{}-]/g, "")} ${id.replace(/[^\w.-]/g, "")}`),
  );
}
