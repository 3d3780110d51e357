// Two dialogs: the list of shortcuts, and the menu of the phone.
import { html, icon, nothing } from "./ui.js";
import { app } from "./store.js";
import { show, close } from "./dialog.js";
import { zone } from "./format.js";
import { flipTheme, flipZone, ofSystems, signOut } from "./shell.js";

const SHORTCUTS = [
  ["/", "find a job by id"],
  ["n", "submit a job"],
  ["j k", "next and previous row"],
  ["enter", "open the row"],
  ["x", "select the row"],
  ["g n, g j, g f, g w", "Now, Jobs, Failures, Workers"],
  ["g i, g p", "Images, Predictions"],
  ["space", "pause, go on"],
  ["?", "this list"],
  ["esc", "close, clear the selection"],
];

const closeButton = () =>
  html`<div class="acts"><button class="btn" autofocus @click=${close}>Close</button></div>`;

export const showShortcuts = () =>
  show(
    () =>
      html`<h2>Shortcuts</h2>
      <dl class="shortcuts">${SHORTCUTS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>${closeButton()}`,
    { label: "Shortcuts" },
  );

export const showMenu = () =>
  show(
    () =>
      html`<h2>More</h2><div class="menu">
      ${ofSystems().map((screen) => html`<a class="btn ghost" href=${screen.href} @click=${close}>${icon(screen.id)}${screen.nav}</a>`)}
      <button class="btn ghost" @click=${flipTheme}>${icon("theme")}Switch theme</button>
      <button class="btn ghost" @click=${flipZone}>${icon("scheduled")}Times: ${zone.name}</button>
      <button class="btn ghost" @click=${showShortcuts}>${icon("jobs")}Shortcuts</button>
      ${app.me?.signed_in ? html`<button class="btn ghost" @click=${signOut}>${icon("close")}Sign out ${app.me.key}</button>` : nothing}
      </div><p class="muted small gap">jobwire ${app.me?.version}${app.me?.read_only ? ", read-only" : ""}</p>${closeButton()}`,
    { label: "More" },
  );
