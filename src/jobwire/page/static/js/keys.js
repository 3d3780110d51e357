// Shortcuts. Nothing happens while the reader types, or in a dialog.
import { app } from "./store.js";
import { isOpen, more, submitSheet } from "./dialog.js";
import { pauseOrGoOn } from "./poll.js";
import { go } from "./router.js";
import { screens } from "./screens/index.js";

let afterG = -Infinity; // when "g" was pressed

function step(by) {
  const links = [...document.querySelectorAll(".hit tbody tr a, .faults > li a.bold")];
  const rows = [...new Map(links.map((link) => [link.closest("tr, li"), link])).values()];
  if (!rows.length) return;
  const at = rows.findIndex((link) => link === document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))].focus();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && typing?.type === "search") typing.blur();
  if (typing || isOpen() || event.metaKey || event.ctrlKey || event.altKey || app.needsKey) return;
  if (performance.now() - afterG < 1500) {
    const screen = screens().find((each) => each.letter === event.key);
    afterG = -Infinity;
    if (screen) return go(screen.href);
  }
  const act = {
    "/": () => document.querySelector(".find input")?.focus(),
    n: () => submitSheet(),
    j: () => step(1),
    k: () => step(-1),
    x: () => document.activeElement.closest?.("tr")?.querySelector("input[type=checkbox]")?.click(),
    g: () => (afterG = performance.now()),
    "?": () => more("showShortcuts"),
    Escape: () => app.screen?.escape?.(),
    " ": event.target.closest("button, a, summary, input") ? null : pauseOrGoOn,
  }[event.key];
  if (!act) return;
  if (event.key !== "Escape") event.preventDefault();
  act();
});
