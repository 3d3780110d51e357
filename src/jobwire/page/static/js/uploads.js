// Photos on their way, in this tab. They go on when another screen is shown.
import { pollNow } from "./poll.js";
import { announce, update } from "./store.js";

const AT_ONCE = 2; // a browser has six connections to a host
const KEPT = 12;

export const uploads = []; // newest first: { name, size, state, sent, stage, id, image, code, words }
let running = 0;
let numbers = 0;

export function addFiles(files, maxSize) {
  for (const file of files) {
    uploads.unshift({
      number: (numbers += 1),
      file,
      name: file.name,
      size: file.size,
      maxSize,
      state: "waiting",
      sent: 0,
      stage: "",
    });
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
  upload.state = "sending";
  update();
  try {
    await (await import("./sender.js")).send(upload);
    announce(`${upload.name} is ready.`);
  } catch (problem) {
    Object.assign(upload, {
      state: "failed",
      code: problem.code ?? "",
      words: problem.words ?? "No answer from the gateway. Send it again when it is back.",
    });
    announce(`${upload.name} failed: ${upload.words}`);
  }
  upload.file = null; // the original is not kept here either
  running -= 1;
  pollNow();
  next();
}
