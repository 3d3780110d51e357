// What a reader can do with jobs: cancel, run again. Many at once go out a few at a time.
import { post } from "./api.js";
import { announce } from "./store.js";
import { plural } from "./format.js";

const AT_ONCE = 4;
const path = (id, act) => `/v1/jobs/${encodeURIComponent(id)}/${act}`;

export const cancelJob = (id) => post(path(id, "cancel"));

// The new job. With `once`, the same failed job is run again once, however often this is pressed.
export const runAgain = (id, { once = false } = {}) =>
  post(
    path(id, "retry"),
    undefined,
    once ? { "idempotency-key": `page-again-${id}`.slice(0, 255) } : {},
  );

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
