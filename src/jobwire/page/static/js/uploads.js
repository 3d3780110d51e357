// Photos on their way: announced, sent, followed to their end. They go on when another screen is shown.
import { call, get, Problem } from "./api.js";
import { StageFollower } from "./events.js";
import { bytes, megabytes } from "./format.js";
import { pollNow } from "./poll.js";
import { announce, update } from "./store.js";

const AT_ONCE = 2; // a browser has six connections to a host
const KEPT = 12;
const RECORD_MS = 150;
const FORMATS = "JPEG, PNG or WebP";

export const uploads = []; // newest first: { name, size, state, sent, stage, id, image, code, words }
let running = 0;
let numbers = 0;

export function addFiles(files, maxSize) {
  for (const file of files) {
    uploads.unshift({ number: (numbers += 1), file, name: file.name, size: file.size, maxSize, state: "waiting", sent: 0, stage: "" });
  }
  for (const old of uploads.filter(ended).slice(KEPT)) dismiss(old);
  for (let slots = AT_ONCE; slots > 0; slots--) next();
  update();
}

export const ended = (upload) => upload.state === "ready" || upload.state === "failed";
export const inWork = () => uploads.filter((upload) => !ended(upload)).length;

export function dismiss(upload) {
  upload.abandon?.();
  const at = uploads.indexOf(upload);
  if (at >= 0) uploads.splice(at, 1);
  update();
}

async function next() {
  const upload = uploads.findLast((each) => each.state === "waiting");
  if (!upload || running >= AT_ONCE) return;
  running += 1;
  try {
    await run(upload);
    announce(`${upload.name} is ready.`);
  } catch (problem) {
    Object.assign(upload, { state: "failed", code: problem.code ?? "", words: words(problem, upload) });
    announce(`${upload.name} failed: ${upload.words}`);
  }
  upload.file = null; // the original is not kept here either
  running -= 1;
  pollNow();
  next();
}

async function run(upload) {
  upload.state = "sending";
  update();
  const type = await typeOf(upload);
  const announced = await call("POST", "/v1/images", {
    body: JSON.stringify({ content_type: type, size: upload.size, filename: fileName(upload.name) }),
  });
  upload.id = announced.image_id;
  await send(upload, announced, type);
  upload.state = "accepted";
  update();
  const { name, error } = await followed(upload);
  upload.image = await record(upload.id);
  if (name === "failed") throw new Problem(422, { code: upload.image.error?.code, detail: upload.image.error?.message ?? error });
  upload.state = "ready";
}

// By content, as the gateway does it; what cannot be uploaded is refused before it is sent.
async function typeOf({ file, size, maxSize }) {
  if (!size) throw new Problem(422, { code: "empty" });
  if (maxSize && size > maxSize) throw new Problem(413, { code: "too_large" });
  let start;
  try {
    start = new Uint8Array(await file.slice(0, 16).arrayBuffer());
  } catch {
    throw new Problem(422, { code: "unreadable" });
  }
  const text = String.fromCharCode(...start);
  if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (text.startsWith("\x89PNG")) return "image/png";
  if (text.startsWith("RIFF") && text.slice(8, 12) === "WEBP") return "image/webp";
  throw new Problem(422, { code: /^.{4}ftyp(hei|mif|avif)/s.test(text) ? "heic" : "not_an_image" });
}

// A name without control characters, as long as the API takes it.
const fileName = (name) => [...name.replace(/[\x00-\x1f\x7f]/g, " ")].slice(0, 255).join("");

// Not fetch(): it does not tell how much was sent.
function send(upload, { upload_url, token }, type) {
  const url = new URL(upload_url);
  return new Promise((done, refuse) => {
    const request = new XMLHttpRequest();
    // On this host the page's own scheme counts: a proxy may have another one than the gateway.
    request.open("PUT", url.host === location.host ? url.pathname : url.href);
    request.setRequestHeader("authorization", `Bearer ${token}`);
    request.setRequestHeader("content-type", type);
    request.upload.onprogress = ({ loaded, total }) => {
      upload.sent = loaded / total;
      update();
    };
    request.onload = () => (request.status === 202 ? done() : refuse(refusal(request)));
    request.onerror = () => refuse(new Problem(0));
    request.send(upload.file);
  });
}

function refusal({ status, responseText }) {
  try {
    return new Problem(status, JSON.parse(responseText));
  } catch {
    return new Problem(status);
  }
}

const followed = (upload) =>
  new Promise((done, refuse) => {
    upload.abandon = () => {
      follower.close();
      refuse(new Problem(404));
    };
    const follower = new StageFollower(`/v1/images/${upload.id}/events`, (name, { stage, error }) => {
      if (name === "failed") upload.failedAt = upload.stage;
      upload.stage = stage;
      update();
      if (name !== "processing") done({ name, error });
    });
    follower.onRefused = () => get(`/v1/images/${upload.id}`).catch(({ status }) => status === 404 && upload.abandon());
  });

// The record is written a moment after the last stage.
async function record(id) {
  for (let tries = 1; ; tries++) {
    const image = await get(`/v1/images/${id}`);
    if (image.status !== "processing" || tries > 20) return image;
    await new Promise((done) => setTimeout(done, RECORD_MS * tries));
  }
}

// What went wrong and what to do, in words.
function words({ status, code, document, message }, { size, maxSize }) {
  const own = {
    empty: "The file is empty.",
    unreadable: "The file could not be read. Choose it again.",
    heic: `HEIC and AVIF are not taken. Save it as ${FORMATS}, and send that.`,
    not_an_image: `This is not a photo: its content is not ${FORMATS}.`,
    unsupported_media_type: `Its content is not of the type that was announced. Send it as ${FORMATS}.`,
    too_large: `It has ${bytes(size)}; a photo may have ${maxSize ? megabytes(maxSize) : "less"}. Send a smaller one.`,
    upload_capacity: "Too many photos are in work now. Send it again in a minute.",
    rate_limited: "Too many requests with this key. Send it again in a minute.",
    already_uploaded: "This upload was used before. Send the photo again.",
    incomplete: "It did not arrive whole. Send it again.",
    bad_upload_token: "The upload took too long to begin. Send it again.",
  }[code];
  if (own) return own;
  if (status === 0) return "No answer from the gateway. Send it again when it is back.";
  if (status === 408) return "The connection was too slow. Send it again.";
  if (status === 404) return "It was deleted.";
  return document?.detail ?? message;
}
