// Starts the page: the route chooses a screen, polls fill it, and each change is drawn once a frame.
import { render } from "../vendor/lit-html/lit-html.js";
import { app, onUpdate, update } from "./store.js";
import { read } from "./router.js";
import { shell } from "./shell.js";
import { makeModal, isOpen, close } from "./dialog.js";
import { part, styled } from "./parts.js";
import { pollNow } from "./poll.js";
import { nameOf, screenOf } from "./screens/index.js";
import "./keys.js";

const root = document.getElementById("root");
const signIn = part(() => styled("sheet", import("./signin.js")));

async function routed() {
  const route = read();
  const entry = screenOf(route);
  const name = nameOf(route);
  app.route = route;
  if (isOpen()) close();
  if (app.screen?.name === name) {
    app.screen.changed?.(route);
  } else {
    const module = await entry.load().catch(() => null);
    if (app.route !== route) return; // the reader has gone on
    if (!module) return pollNow(); // the banner shows that the gateway does not answer
    app.screen?.close?.();
    app.screen = Object.assign(module.open(route), { name, entry });
    scrollTo(0, 0);
  }
  update();
  pollNow();
}

onUpdate(() => {
  render(app.needsKey ? signIn(({ signInView }) => signInView()) : shell(), root);
  document.title = app.screen
    ? `${app.screen.label || app.screen.entry.title} · jobwire`
    : "jobwire";
  makeModal();
  app.screen?.drawn?.();
});

addEventListener("hashchange", routed);
addEventListener("resize", update);
root.textContent = "";
routed();
