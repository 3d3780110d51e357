// Lists are read every two seconds. Nothing is read while the tab is hidden or the reader has paused.
import { app, update } from "./store.js";
import { get, key, readiness } from "./api.js";

const EVERY_MS = 2000;
const RARE = 5; // of the polls that also read what changes seldom
let timer = null;
let polls = 0;
let failures = 0;
let running = false;
let wanted = false;

export const retryAt = { ts: 0 };

// Read now, and then again and again.
export async function pollNow() {
  clearTimeout(timer);
  if (running) {
    wanted = true;
    return;
  }
  running = true;
  wanted = false;
  await poll();
  running = false;
  if (wanted) return pollNow();
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (document.hidden || app.needsKey) return;
  if (!app.live && !app.offline) return;
  const wait = app.offline ? Math.min(8000, 500 * 2 ** failures) : EVERY_MS;
  retryAt.ts = Date.now() + wait;
  timer = setTimeout(pollNow, wait);
}

async function poll() {
  const screen = app.screen;
  try {
    if (!app.me) {
      app.me = await get("/v1/me");
      app.needsKey = false;
    }
    const rare = polls++ % RARE === 0;
    await Promise.all([shared(rare), screen?.poll?.(rare)]);
    failures = 0;
    app.offline = null;
    app.dataAt = Date.now();
  } catch (problem) {
    failed(problem);
  }
  update();
}

async function shared(rare) {
  app.overview = await get("/v1/overview").catch(orNone);
  if (!rare && app.parts) return;
  [app.failed, app.parts] = await Promise.all([
    get("/v1/failures", { hours: 1 }).catch(orNone),
    readiness(),
  ]);
}

// A gateway whose systems have no overview has no such route.
function orNone(problem) {
  if (problem.status === 404) return null;
  throw problem;
}

function failed(problem) {
  if (problem.status === 401 || (problem.status === 403 && !app.me)) {
    app.needsKey = problem;
    if (problem.code !== "unauthorized" && key.get()) app.badKey = problem.message;
    return;
  }
  failures += 1;
  if (problem.noAnswer) {
    app.offline ??= { since: Date.now(), dataAt: app.dataAt };
    app.offline.detail = problem.message;
  } else {
    console.error(problem);
  }
}

export function pauseOrGoOn() {
  app.live = !app.live;
  if (app.live) pollNow();
  else clearTimeout(timer);
  app.screen?.paused?.(!app.live);
  update();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else pollNow();
});
// The banner counts its seconds, and ages grow, also between polls.
setInterval(() => {
  if (!document.hidden && (app.offline || app.live)) update();
}, 1000);
