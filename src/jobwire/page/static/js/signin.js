// Asks for an API key. It stays in this tab and is gone when the tab is closed.
import { html, icon, nothing, command } from "./ui.js";
import { app, update } from "./store.js";
import { key } from "./api.js";
import { pollNow } from "./poll.js";

async function signIn(event) {
  event.preventDefault();
  key.set(new FormData(event.target).get("key").trim());
  app.needsKey = false;
  app.badKey = "";
  await pollNow();
  if (app.needsKey) {
    app.badKey ||= app.needsKey.message;
    key.clear();
  }
  update();
}

export const signInView = () =>
  html`<main class="signin"><form @submit=${signIn}>
  <h1 class="brand">${icon("logo", "")}<span>jobwire</span></h1>
  <label class="field"><span>API key</span>
    <input name="key" type="password" autocomplete="off" required autofocus aria-describedby="wrong" /></label>
  <p id="wrong" class="small failed" role="alert">${app.badKey || nothing}</p>
  <button class="btn primary">Sign in</button>
  <p class="muted small">The key stays in this tab and is gone when you close it. It needs the scope
    <code>read</code>; to submit and cancel, also <code>submit</code>.</p>
  <p class="small">Make one:</p>${command("jobwire key me --scope read --scope submit")}
</form></main>`;
