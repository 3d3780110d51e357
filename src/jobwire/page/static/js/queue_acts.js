// What a reader can do with a queue and its jobs.
import { call, post } from "./api.js";
import { addSheet, ask } from "./dialog.js";
import { plural } from "./format.js";
import { go } from "./router.js";
import { childrenIn, jobPath, queueLink, waitingIn } from "./queues.js";

export const retryJob = (queue) => (id) => post(jobPath(queue, id, "/retry"));
export const promoteJob = (queue) => (id) => post(jobPath(queue, id, "/promote"));
export const removeJob = (queue) => (id) => call("DELETE", jobPath(queue, id));

export const askPause = (queue, act) =>
  ask(
    `Pause ${queue.name}?`,
    `No worker of any program starts another of its ${plural(waitingIn(queue), "waiting job")}. ${plural(queue.counts.active, "running job")} will go on.`,
    act,
    { yes: "Pause queue", no: "Leave it" },
  );

// The buttons of a job's screen.
const askFirst = (screen, title, text, yes, act) =>
  ask(title, text, screen.attempt(act), { yes, no: "Leave it", danger: true });

export const ofJob = {
  copy: ({ queue, job: { name, data, opts } }) => addSheet({ queue, name, data, opts }),
  retry: (screen) => screen.attempt(() => retryJob(screen.queue)(screen.id))(),
  promote: (screen) => screen.attempt(() => promoteJob(screen.queue)(screen.id))(),
  cancel: (screen) =>
    askFirst(
      screen,
      "Cancel this job?",
      "Its worker is asked to stop it; it fails as canceled and does not run again.",
      "Cancel job",
      () => post(`${screen.path}/cancel`),
    ),
  remove: (screen) => {
    const n = screen.tree ? childrenIn(screen.tree.job.counts) : 0;
    const children = plural(n, "child", "children");
    askFirst(
      screen,
      "Remove this job?",
      `It is deleted with its data and log${n ? `, and with ${children}` : ""}.`,
      n ? `Remove job and ${children}` : "Remove job",
      async () => {
        screen.leave(true);
        try {
          await removeJob(screen.queue)(screen.id);
          go(queueLink(screen.queue));
        } catch (problem) {
          screen.leave(false);
          throw problem;
        }
      },
    );
  },
};
