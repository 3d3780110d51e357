// Starts the page: the route chooses a screen, polls fill it, and each change is drawn once a frame.
import { render } from "../vendor/lit-html/lit-html.js";
import { app, onUpdate, update } from "./store.js";
import { read } from "./router.js";
import { shell } from "./shell.js";
import { signInView } from "./signin.js";
import { makeModal, isOpen, close } from "./dialog.js";
import { pollNow } from "./poll.js";
import { screenOf } from "./screens/index.js";
import "./keys.js";

const root = document.getElementById("root");

async function routed() {
  const route = read();
  const entry = screenOf(route);
  const name = `${entry.id} ${entry.key?.(route) ?? ""}`;
  app.route = route;
  if (isOpen()) close();
  if (app.screen?.name === name) {
    app.screen.changed?.(route);
  } else {
    const { open } = await entry.load();
    if (app.route !== route) return; // the reader has gone on
    app.screen?.close?.();
    app.screen = Object.assign(open(route), { name, entry });
    scrollTo(0, 0);
  }
  update();
  pollNow();
}

onUpdate(() => {
  render(app.needsKey ? signInView() : shell(), root);
  document.title = app.screen ? `${app.screen.entry.title} · jobwire` : "jobwire";
  makeModal();
  app.screen?.drawn?.();
});

addEventListener("hashchange", routed);
addEventListener("resize", update);
root.textContent = "";
routed();
