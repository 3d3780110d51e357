// What a reader can do with jobs: cancel, run again. Many at once go out a few at a time.
import { post } from "./api.js";
import { announce } from "./store.js";
import { plural } from "./format.js";

const AT_ONCE = 4;
const path = (id, act) => `/v1/jobs/${encodeURIComponent(id)}/${act}`;

export const sendSignal = (id, name, value) =>
  post(path(id, `signals/${encodeURIComponent(name)}`), JSON.stringify(value));
export const cancelJob = (id) => post(path(id, "cancel"));

// The new job.
export const runAgain = (id) => post(path(id, "retry"));

// Run the failed jobs of a kind again, each once however often this is pressed; or only count them. Returns what each()
// does, and how many had been run again before.
export async function retryMany({ task, code, message }, { dryRun = false } = {}) {
  let cursor = null;
  let [matched, done, already, refusal, stopped] = [0, 0, 0, null, false];
  do {
    const which = { task, code, message: message || null, dry_run: dryRun, cursor };
    const answer = await post("/v1/jobs/retry", JSON.stringify(which));
    matched += answer.matched;
    done += answer.changed;
    already += answer.already;
    cursor = answer.cursor;
    if (answer.problem) {
      refusal ??= { message: answer.problem.detail ?? answer.problem.title };
      stopped = [429, 503].includes(answer.problem.status); // the others would be refused, too
    }
  } while (cursor && !stopped);
  if (!dryRun) announce(`${plural(done, "job")} submitted again.`);
  return { matched, done, already, refusal };
}

// Each of `ids`; returns how many were done, and the first refusal.
export async function each(ids, act, word) {
  const waiting = [...ids];
  let done = 0;
  let refusal = null;
  const worker = async () => {
    while (waiting.length) {
      try {
        await act(waiting.shift());
        done += 1;
      } catch (problem) {
        refusal ??= problem;
        if (problem.noAnswer || problem.status === 429) waiting.length = 0;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  announce(`${plural(done, "job")} ${word}.`);
  return { done, refusal };
}
