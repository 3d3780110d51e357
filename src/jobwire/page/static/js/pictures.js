// Pictures by their path. They are fetched with the reader's key and shown from memory: an <img> sends
// no headers. The oldest are forgotten.
import { signed } from "./api.js";
import { update } from "./store.js";
import { html } from "./ui.js";

const KEPT = 120;
const AT_ONCE = 3;
const AGAIN_MS = 5000;
const pictures = new Map(); // path → { url, facts, error }
const waiting = [];
let loading = 0;

// What is known of a picture now; it is loaded when it is first asked for.
export function picture(path) {
  let found = pictures.get(path);
  if (found) return found;
  found = {};
  pictures.set(path, found);
  waiting.push([path, found]);
  next();
  for (const [old, { url }] of pictures) {
    if (pictures.size <= KEPT) break;
    if (url) URL.revokeObjectURL(url);
    pictures.delete(old);
  }
  return found;
}

// Forget a picture that is gone.
export function forget(path) {
  const found = pictures.get(path);
  if (found?.url) URL.revokeObjectURL(found.url);
  pictures.delete(path);
}

async function next() {
  if (loading >= AT_ONCE || !waiting.length) return;
  const [path, found] = waiting.shift();
  loading += 1;
  try {
    const answer = await fetch(path, { headers: signed(), credentials: "omit" });
    const later = Number(answer.headers.get("retry-after"));
    if (answer.status === 409 && later) {
      setTimeout(() => (forget(path), update()), later * 1000); // and asked for again
      throw new Error("It is being made again.");
    }
    if (!answer.ok)
      throw new Error(
        answer.status === 404 ? "It is not stored any more." : "It could not be read.",
      );
    found.facts = {
      size: Number(answer.headers.get("jobwire-original-size")) || null,
      hidden: answer.headers.get("jobwire-hidden-areas"),
    };
    const url = URL.createObjectURL(await answer.blob());
    if (pictures.get(path) === found) found.url = url;
    else URL.revokeObjectURL(url); // forgotten meanwhile
  } catch (error) {
    const away = error instanceof TypeError;
    found.error = away ? "No answer from the gateway." : error.message;
    if (away) setTimeout(forget, AGAIN_MS, path); // and asked for again
  }
  loading -= 1;
  update();
  next();
}

// A small picture of a row; empty while there is none.
export function thumbnail(path, label) {
  const url = path && picture(path).url;
  return url
    ? html`<img class="thumb" src=${url} alt=${label} />`
    : html`<span class="thumb none"></span>`;
}
