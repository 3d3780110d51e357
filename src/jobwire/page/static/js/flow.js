// A flow as a tree: a job, the jobs that it waits for, and its parent.
import { html, nothing, icon } from "./ui.js";
import { plural, shortId } from "./format.js";
import { childrenIn, percentIn, queueJobLink, shapeOf, wordOf } from "./queues.js";

function note(job) {
  const percent = percentIn(job.progress);
  if (job.removed) return html`<span class="muted">removed</span>`;
  if (job.state === "active" && percent !== null)
    return html`<span class="running">${Math.round(percent)} %</span>`;
  if (job.state === "failed")
    return html`<span class="failed cut">${job.failed_reason ?? "failed"}</span>`;
  if (job.state === "waiting-children")
    return html`<span class="muted">waits for ${job.counts.pending} of ${childrenIn(job.counts)}</span>`;
  return html`<span class="muted">${wordOf(job.state).toLowerCase()}</span>`;
}

const name = (job, here) => {
  const label = job.name || "no name";
  if (here || job.removed) return html`<b class="bold cut">${label}</b>`;
  return html`<a class="cut" href=${queueJobLink(job.queue, job.id)}>${label}</a>`;
};

const node = (job, here, above) =>
  html`<div class="node">${icon(shapeOf(job.state), `dot ${shapeOf(job.state)}`)}<span class="vh">${wordOf(job.state)}</span>
    ${name(job, here)}<code class="muted" title=${job.id}>${shortId(job.id)}</code>${note(job)}<span class="grow"></span>
    ${job.queue === above ? nothing : html`<span class="muted small cut">${job.queue}</span>`}</div>`;

// `here` is the id of the open job, which is not a link.
const branch = (job, here, above) => {
  const more = childrenIn(job.counts) - job.children.length;
  return html`<li>${node(job, job.id === here, above)}
    ${
      job.children.length || more > 0
        ? html`<ul>${job.children.map((child) => branch(child, here, job.queue))}
      ${more > 0 ? html`<li><div class="node muted small">${job.children.length ? "and " : ""}${plural(more, job.children.length ? "more child" : "child", job.children.length ? "more children" : "children")}</div></li>` : nothing}</ul>`
        : nothing
    }</li>`;
};

// `queue` is that of the screen: jobs of others show theirs.
export function treeView({ job, parent }, queue, here = "") {
  if (!parent) return html`<ul class="tree">${branch(job, here, queue)}</ul>`;
  const others = childrenIn(parent.counts) - 1;
  return html`<ul class="tree"><li>${node(parent, false, queue)}<ul>${branch(job, here, parent.queue)}
    ${others > 0 ? html`<li><div class="node muted small"><a class="link" href=${queueJobLink(parent.queue, parent.id, { tab: "flow" })}>and ${plural(others, "other child", "other children")}</a></div></li>` : nothing}</ul></li></ul>`;
}
