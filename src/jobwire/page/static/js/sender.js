// Sends photos. It is loaded with the first one.
import { call, get, Problem } from "./api.js";
import { Follower } from "./events.js";
import { bytes, megabytes } from "./format.js";
import { update } from "./store.js";

const RECORD_MS = 150;
const FORMATS = "JPEG, PNG, WebP, AVIF or HEIC";

// Announce a photo, send it, and follow it to its end. A Problem with `words` if it is not published.
export async function send(upload) {
  try {
    await publish(upload);
  } catch (problem) {
    throw Object.assign(problem, { words: words(problem, upload) });
  }
}

async function publish(upload) {
  const type = await typeOf(upload);
  const announced = await call("POST", "/v1/images", {
    body: JSON.stringify({
      content_type: type,
      size: upload.size,
      filename: fileName(upload.name),
    }),
  });
  upload.id = announced.image_id;
  await put(upload, announced, type);
  upload.state = "accepted";
  update();
  const { name, error } = await followed(upload);
  upload.image = await record(upload.id);
  if (name === "failed")
    throw new Problem(422, {
      code: upload.image.error?.code,
      detail: upload.image.error?.message ?? error,
    });
  upload.state = "ready";
}

// By content, as the gateway does it; what cannot be uploaded is refused before it is sent.
async function typeOf({ file, size, maxSize }) {
  if (!size) throw new Problem(422, { code: "empty" });
  if (maxSize && size > maxSize) throw new Problem(413, { code: "too_large" });
  let start;
  try {
    start = new Uint8Array(await file.slice(0, 40).arrayBuffer());
  } catch {
    throw new Problem(422, { code: "unreadable" });
  }
  const text = String.fromCharCode(...start);
  if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (text.startsWith("\x89PNG")) return "image/png";
  if (text.startsWith("RIFF") && text.slice(8, 12) === "WEBP") return "image/webp";
  const brands = text.slice(4, 8) === "ftyp" ? text.slice(8, text.charCodeAt(3)) : "";
  if (/avi[fs]/.test(brands)) return "image/avif";
  if (/he[iv][cxms]/.test(brands)) return "image/heic";
  throw new Problem(422, { code: "not_an_image" });
}

// A name without control characters, as long as the API takes it.
const fileName = (name) => [...name.replace(/[\x00-\x1f\x7f]/g, " ")].slice(0, 255).join("");

// Not fetch(): it does not tell how much was sent.
function put(upload, { upload_url, token }, type) {
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

// `heard` is called with the name and the data of each state of an image: {stage, progress, error?}.
class StageFollower extends Follower {
  constructor(path, heard) {
    super(path, {});
    this.heard = heard;
  }

  listen(source) {
    for (const name of ["processing", "ready", "failed"])
      source.addEventListener(name, (event) => {
        this.lastId = event.lastEventId;
        if (name !== "processing") this.close();
        this.heard(name, JSON.parse(event.data));
      });
  }
}

const followed = (upload) =>
  new Promise((done, refuse) => {
    upload.abandon = () => {
      follower.close();
      refuse(new Problem(404));
    };
    const follower = new StageFollower(
      `/v1/images/${upload.id}/events`,
      (name, { stage, error }) => {
        if (name === "failed") upload.failedAt = upload.stage;
        upload.stage = stage;
        update();
        if (name !== "processing") done({ name, error });
      },
    );
    follower.onRefused = () =>
      get(`/v1/images/${upload.id}`).catch(({ status }) => status === 404 && upload.abandon());
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
    not_an_image: `This is not a photo: its content is not ${FORMATS}.`,
    unsupported_media_type:
      "Its content is not of the type that was announced, or photos of this type are not read here. Send it as JPEG.",
    too_large: `It has ${bytes(size)}; a photo may have ${maxSize ? megabytes(maxSize) : "less"}. Send a smaller one.`,
    upload_capacity: "Too many photos are being processed now. Send it again in a minute.",
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
