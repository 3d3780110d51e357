// The bar above a list: a filter, and the switch between jobs and queues.
import { html, icon, nothing } from "./ui.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { serves } from "./store.js";
import { link, replace } from "./router.js";

const TYPED_MS = 250;

// The filter of a screen with `typedText` and `href(q)`; the URL follows what is typed a moment later.
export function filterField(screen, label, placeholder) {
  const typed = (event) => {
    clearTimeout(screen.timer);
    screen.typedText = event.target.value;
    // The text is kept, also where the reader goes to another state meanwhile.
    const q = screen.typedText.trim();
    screen.timer = setTimeout(() => replace(screen.href(q)), TYPED_MS);
  };
  return html`<div class="filter"><label class="vh" for="filter">${label}</label>${icon("find")}
    <input id="filter" type="search" placeholder=${placeholder} spellcheck="false" .value=${live(screen.typedText)} @input=${typed} /></div>`;
}

export const wireSwitch = (current) =>
  serves("jobs")
    ? html`<nav class="seg" aria-label="Wire">
        <a href="#/jobs" aria-current=${current === "streams" ? "true" : nothing}>Jobs</a
        ><a href=${link(["jobs"], { wire: "bullmq" })} aria-current=${current === "bullmq" ? "true" : nothing}>Queues</a></nav>`
    : nothing;
