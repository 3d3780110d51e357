// What surrounds every screen: navigation, search, the banner of an outage, dialogs.
import { html, icon, nothing, health } from "./ui.js";
import { app, may, update } from "./store.js";
import { get, key } from "./api.js";
import { dialogView, more, submitSheet } from "./dialog.js";
import { pauseOrGoOn, pollNow, retryAt } from "./poll.js";
import { age, clock, duration, zone } from "./format.js";
import { go, jobLink, link } from "./router.js";
import { screens } from "./screens/index.js";

const current = (screen) => (app.screen?.entry.id === screen.id ? "page" : nothing);

const navLink = (screen) => {
  const badge = screen.badge?.();
  return html`<a href=${screen.href} title=${screen.title} aria-current=${current(screen)}
    >${icon(screen.id)}<span>${screen.nav}</span
    >${badge ? html`<b class="n ${badge.tone ?? ""}">${badge.text}</b>` : nothing}</a>`;
};

export const ofSystems = () => screens().filter((screen) => screen.system);

const navigation = () =>
  html`<div class="nav">${screens()
    .filter((screen) => !screen.system)
    .map(navLink)}</div>
  ${ofSystems().length ? html`<h2 class="group">Systems</h2><div class="nav">${ofSystems().map(navLink)}</div>` : nothing}`;

export function signOut() {
  key.clear();
  location.hash = "#/";
  location.reload();
}

export const flipZone = () => {
  zone.flip();
  update();
};
export const flipTheme = () => {
  window.flipTheme();
  update();
};

const foot = () =>
  html`<div class="foot">
  <span class="row between">${app.offline ? health("warn", "No answer") : health("ok", "Connected")}
    <span>${app.offline || app.latency == null ? "" : duration(app.latency)}</span></span>
  ${
    app.me?.signed_in
      ? html`<span>Key <code>${app.me.key}</code> · tenant <code>${app.me.tenant}</code></span>`
      : html`<span>Open to this machine only</span>`
  }
  ${app.me?.read_only ? html`<span>Read-only</span>` : nothing}
  <span class="row">${app.me?.version} <span class="grow"></span>
    <button class="link tiny" @click=${flipZone} title="Switch between UTC and local time">${zone.name}</button>
    <button class="copy" @click=${flipTheme} aria-label="Switch theme" title="Switch theme">${icon("theme")}</button>
    <button class="copy" @click=${() => more("showShortcuts")} aria-label="Shortcuts" title="Shortcuts (?)">?</button>
    ${app.me?.signed_in ? html`<button class="link tiny" @click=${signOut}>Sign out</button>` : nothing}</span>
</div>`;

// An id goes straight to its job; other text becomes a filter of the list.
async function find(event) {
  event.preventDefault();
  const input = event.target.querySelector("input");
  const q = input.value.trim();
  if (!q) return;
  try {
    const { found, scanned } = await get("/v1/search", { q });
    const exact = found.filter((each) => each.id === q);
    const [first] = exact.length ? exact : found;
    if (exact.length === 1 || (found.length === 1 && !scanned))
      go(jobLink(first.wire, first.id, {}, first.name));
    else go(link(["jobs"], { wire: first?.wire === "bullmq" ? first.wire : "", q }));
    input.value = "";
    input.blur();
  } catch (problem) {
    app.message = problem.message;
    update();
  }
}

const search = () =>
  html`<form class="find" role="search" @submit=${find}>
  <label class="vh" for="find">Find a job by id</label>${icon("find")}
  <input id="find" type="search" placeholder="Find a job by id" spellcheck="false" autocomplete="off" /><kbd aria-hidden="true">/</kbd>
</form>`;

const liveButton = () =>
  html`<button class="btn ${app.live && !app.offline ? "live" : ""}" aria-pressed=${app.live}
  title=${app.live ? "Pause (space)" : "Go on (space)"} @click=${pauseOrGoOn}
  >${app.offline ? html`${icon("pause")}Stale` : app.live ? html`<i></i>Live` : html`${icon("pause")}Paused`}</button>`;

const banner = () => {
  if (!app.offline) return nothing;
  const wait = Math.max(0, Math.ceil((retryAt.ts - Date.now()) / 1000));
  const { since, dataAt, detail } = app.offline;
  return html`<div class="banner" role="status">${icon("warn")}<span class="grow">
    <b class="bold">No answer for ${age(Date.now() - since)}.</b> ${detail}.
    ${dataAt ? html`Data from ${clock(dataAt)} ${zone.name}.` : nothing}
    Trying again in ${wait} s.</span>
    <button class="btn slim" @click=${pollNow}>Try now</button></div>`;
};

const badgeOf = (screen) => {
  const badge = screen.badge?.();
  return badge?.tone === "failed" ? html`<em>${badge.text}</em>` : nothing;
};

export const shell = () =>
  html`<a class="skip" href="#main" @click=${(event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  }}>To the content</a>
  <div class="app ${app.offline ? "stale" : ""}">
    <nav class="side" aria-label="Main">
      <a class="brand" href="#/">${icon("logo", "")}<span>jobwire</span></a>
      ${navigation()}${foot()}
    </nav>
    <main class="main" id="main" tabindex="-1">
      <div class="top"><h1>${app.screen?.title() ?? "jobwire"}</h1>${search()}
        <a class="btn square phone" href="#/jobs" aria-label="Find a job">${icon("find")}</a>${liveButton()}
        ${
          may("submit")
            ? html`<button class="btn primary wide" @click=${() => submitSheet()}>Submit<kbd>n</kbd></button>
              <button class="btn square phone" aria-label="Submit a job" @click=${() => submitSheet()}>${icon("plus")}</button>`
            : nothing
        }</div>
      ${banner()}
      <div class="page">${app.screen?.view() ?? nothing}</div>
    </main>
    <nav class="tabbar" aria-label="Main, phone">
      ${screens()
        .slice(0, 4)
        .map(
          (screen) =>
            html`<a href=${screen.href} aria-current=${current(screen)}>${icon(screen.id)}${screen.nav}${badgeOf(screen)}</a>`,
        )}
      <button @click=${() => more("showMenu")} aria-current=${app.screen?.entry.system ? "page" : nothing}>${icon("more")}More</button>
    </nav>
    <div class="vh" role="status" aria-live="polite">${app.message}</div>
  </div>${dialogView()}`;
