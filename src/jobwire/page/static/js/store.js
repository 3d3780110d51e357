// The state that the shell and all screens share, and the one place that asks for a new rendering.
export const app = {
  me: null, // the caller: key, tenant, scopes; null before the first answer
  needsKey: false,
  overview: null, // /v1/overview
  failed: null, // /v1/failures of the last hour
  parts: null, // /readyz
  latency: null, // of the last call, ms
  live: true, // false: paused by the reader
  offline: null, // { since, dataAt, detail } while the gateway does not answer
  route: null,
  screen: null, // the open screen
  message: "", // for the live region
};

let draw = () => {};
let queued = false;

export const onUpdate = (render) => (draw = render);

export function update() {
  if (queued) return;
  queued = true;
  // A hidden tab has no frames; what is drawn there is drawn when it is shown again.
  requestAnimationFrame(() => {
    queued = false;
    draw();
  });
}

export const may = (scope) =>
  !!app.me && app.me.scopes.includes(scope) && (scope === "read" || !app.me.read_only);

// Whether this gateway serves a system.
export const serves = (system) => !!app.me?.features.includes(system);

// Announce a sentence to screen readers (aria-live), at most one every five seconds.
let lastAnnounced = 0;
let next = null;
export function announce(sentence) {
  if (sentence === app.message) return;
  clearTimeout(next);
  const wait = Math.max(0, lastAnnounced + 5000 - Date.now());
  next = setTimeout(() => {
    lastAnnounced = Date.now();
    app.message = sentence;
    update();
  }, wait);
}
