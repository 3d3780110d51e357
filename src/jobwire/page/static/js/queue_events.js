// The events of a queue's job, and its life in the form that the lifeline draws.
import { Follower } from "./events.js";
import { parse } from "./json.js";

const OVER = ["completed", "failed", "unknown"];
const NAMES = [
  ...["added", "waiting", "prioritized", "delayed", "active", "waiting-children", "progress"],
  ...[
    "completed",
    "failed",
    "retries-exhausted",
    "stalled",
    "removed",
    "duplicated",
    "deduplicated",
  ],
  ...["retry", "custom"],
];

// `heard` is called with each event: {id, type, ts, data}; `gap` where some are missing.
export class QueueJobFollower extends Follower {
  constructor(path, heard, gap) {
    super(path, {});
    Object.assign(this, { heard, gap });
  }

  listen(source) {
    source.addEventListener("gap", () => this.gap());
    // The gateway ends the stream of a job that has ended: that is not a fault.
    source.addEventListener(
      "hello",
      (event) => (this.over = OVER.includes(JSON.parse(event.data).state)),
    );
    for (const name of NAMES)
      source.addEventListener(name, (event) => {
        this.lastId = event.lastEventId;
        const { event: type, ts, fields } = JSON.parse(event.data);
        if (name !== "progress")
          this.over = [...OVER, "removed", "retries-exhausted"].includes(name);
        this.heard({
          id: event.lastEventId,
          type,
          ts,
          data: fields,
          exact: parse(event.data).fields,
        });
      });
  }
}

const STATUS = { active: "running", completed: "done", failed: "error" };

// The job as the lifeline knows it.
export function asJob(job, events) {
  const status = STATUS[job.state] ?? "queued";
  const planned = events.findLast((event) => event.type === "delayed")?.data.delay;
  const due = job.state === "delayed" ? Number(planned) || job.timestamp + job.delay : null;
  return {
    status,
    created_ts: job.timestamp,
    updated_ts: job.finished_on ?? job.processed_on ?? job.timestamp,
    due_ts: due,
    worker: job.processed_by,
  };
}

// The events that change a job's life. The queue trims old events: the hash fills in.
export function asLife(job, events) {
  const life = [];
  let running = false;
  const add = (type, ts, data) => life.push({ type, ts, data });
  for (const { type, ts, data } of events) {
    if (type === "active") add("running", ts);
    else if (type === "progress") add("progress", ts);
    else if (type === "completed") add("done", ts);
    else if (type === "failed") add("error", ts, { code: "failed" });
    else if (running && (type === "delayed" || type === "waiting" || type === "stalled"))
      add("retrying", ts, { error: { code: type === "stalled" ? "stalled" : "failed" } });
    else if (running && type === "waiting-children")
      add("queued", ts, { code: "waits for children" });
    if (
      [
        "active",
        "completed",
        "failed",
        "delayed",
        "waiting",
        "stalled",
        "waiting-children",
      ].includes(type)
    )
      running = type === "active";
  }
  if (job.processed_on && !life.some((event) => event.type === "running"))
    life.unshift({ type: "running", ts: job.processed_on });
  const end = STATUS[job.state];
  if (job.finished_on && end !== "running" && life.at(-1)?.type !== end)
    add(end ?? "done", job.finished_on, { code: "failed" });
  return life;
}
