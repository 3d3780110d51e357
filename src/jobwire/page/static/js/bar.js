// The bar above a list: a filter, and the switch between jobs and queues.
import { html, icon, nothing } from "./ui.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { serves } from "./store.js";
import { link, read, replace } from "./router.js";
import { nameOf } from "./screens/index.js";

const TYPED_MS = 250;

// The filter of a screen with `typedText`; the URL follows what is typed a moment later.
export function filterField(screen, label, placeholder) {
  const typed = (event) => {
    clearTimeout(screen.timer);
    screen.typedText = event.target.value;
    const q = screen.typedText.trim();
    const name = nameOf(read());
    // Meanwhile the reader may have gone on: to another state, where the text is kept, or away. The URL
    // says so first, the screen only when it is told.
    screen.timer = setTimeout(() => {
      const route = read();
      if (nameOf(route) === name)
        replace(link(route.parts, { ...Object.fromEntries(route.query), q }));
    }, TYPED_MS);
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
