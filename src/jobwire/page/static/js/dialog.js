// One dialog at a time: a question before an act, the list of shortcuts, or the menu of the phone.
import { html, nothing } from "./ui.js";
import { app, update } from "./store.js";
import { styled } from "./parts.js";

let open = null; // { view, cls, label, before: the element that had the focus }

export function show(view, { cls = "ask", label }) {
  open = { view, cls, label, before: document.activeElement };
  update();
}

export function close() {
  const before = open?.before;
  open = null;
  update();
  before?.isConnected && before.focus();
}

export const isOpen = () => open !== null;

// Name the act and the count, and ask. `act` runs after the dialog is closed.
export const ask = (title, text, act, { yes, no = "Leave them", danger = false }) =>
  show(
    () =>
      html`<h2>${title}</h2>
      <p class="soft">${text}</p>
      <div class="acts">
        <button class="btn" autofocus @click=${close}>${no}</button>
        <button
          class="btn ${danger ? "danger" : "primary"}"
          @click=${() => {
            close();
            act();
          }}
        >${yes}</button>
      </div>`,
    { label: title },
  );

// lit renders the element; the browser makes it modal: focus, Escape and what lies below.
export const dialogView = () =>
  open
    ? html`<dialog
        class=${open.cls}
        aria-label=${open.label}
        @close=${close}
        @click=${(event) => event.target === event.currentTarget && close()}
      >${open.view()}</dialog>`
    : nothing;

export function makeModal() {
  const element = document.querySelector("dialog");
  if (element && !element.open) element.showModal();
}

// The sheet of the open screen, or the one that submits a job; both are loaded when they are first opened.
export const submitSheet = async (given) =>
  !given && app.screen?.submit
    ? app.screen.submit()
    : (await styled("text sheet", import("./submit.js"))).openSubmit(given);
export const addSheet = async (given) =>
  (await styled("text sheet", import("./addjob.js"))).openAdd(given);

// `showShortcuts` or `showMenu`.
export const more = async (name) => (await styled("sheet", import("./more.js")))[name]();
