// The tab Result of a queue's job: what it returned, or why it failed.
import { html, nothing } from "./ui.js";
import { jsonPart } from "./jobview.js";
import { queueLink } from "./queues.js";

const STACKS = 10;

export function resultView(screen) {
  const { job, queue } = screen;
  if (job.state === "completed") return screen.jsonView(job.returnvalue);
  const failed = job.state === "failed";
  const stacks = job.stacktrace.filter((text) => text.trim() !== job.failed_reason);
  const title = (i) => (stacks.length > 1 ? `Stack trace ${stacks.length - i} of ${stacks.length}` : "Stack trace");
  return html`<div class="gap"><p><b class="bold ${failed ? "failed" : "warn"}">${failed ? "Failed" : "The last attempt failed"}</b></p><pre class="json gap" tabindex="0">${job.failed_reason}</pre>
    ${failed ? html`<p class="muted small gap"><a class="link" href=${queueLink(queue, { state: "failed" })}>Other failed jobs of ${queue}</a></p>` : nothing}</div>
    ${stacks.length ? jsonPart(({ stackView }) => stacks.slice(-STACKS).reverse().map((text, i) => stackView(title(i), text))) : nothing}`;
}
