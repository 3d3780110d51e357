// The official package as a program that runs one operation per line: node bullmq_peer.js PACKAGES URL
//
// Reads {"op", "version", "db", "queue", "now", "worker", ...} as JSON lines from stdin and answers
// each with {"value"} or {"error", "code"}. The clock is pinned at "now". Ends with its stdin.
const { createRequire } = require("node:module");
const { createInterface } = require("node:readline");

const [folder, url] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const packages = { 6: load("bullmq"), 5: load("bullmq5") };

const systemNow = Date.now;
let now = null;
Date.now = () => (now === null ? systemNow() : now);

const cached = new Map();
function cache(key, make) {
  if (!cached.has(key)) cached.set(key, make());
  return cached.get(key);
}

function connection(db) {
  const at = new URL(url);
  return {
    host: at.hostname, port: Number(at.port), username: at.username, password: at.password, db,
    maxRetriesPerRequest: null,
  };
}

// Only the operation may write: neither metadata of the queue nor a worker's own loop.
const queueOf = ({ version, db, queue }) => cache(`queue ${version} ${db} ${queue}`, () =>
  new packages[version].Queue(queue, { connection: connection(db), skipMetasUpdate: true }));

const flowsOf = ({ version, db }) => cache(`flows ${version} ${db}`, () =>
  new packages[version].FlowProducer({ connection: connection(db) }));

function workerOf(call) {
  const { version, db, queue, worker = {} } = call;
  return cache(`worker ${version} ${db} ${queue} ${JSON.stringify(worker)}`, () => {
    const made = new packages[version].Worker(queue, null, {
      connection: connection(db), autorun: false, ...worker,
    });
    made.on("error", () => {});
    return made;
  });
}

const scriptsOf = (worker) => worker.backend ?? worker.scripts;

function summary(raw) {
  if (!Array.isArray(raw)) return null;
  const [fields, id, limited, due] = raw;
  if (fields) return { job: String(id) };
  if (limited > 0) return { limited: true };
  return { due: Math.floor(due || 0) };
}

async function fetched(worker, raw, token) {
  if (Array.isArray(raw) && raw[0]) await worker.nextJobFromJobData(raw[0], raw[1], token);
  return summary(raw);
}

// A job as its worker has it. A missing job is constructed, so that the script reports it missing.
async function held(call) {
  const worker = workerOf(call);
  const { Job } = packages[call.version];
  const job = (await Job.fromId(worker, call.id)) ?? new Job(worker, "gone", {}, {}, call.id);
  return { worker, job };
}

async function jobOf(call) {
  const queue = queueOf(call);
  const { Job } = packages[call.version];
  return (await Job.fromId(queue, call.id)) ?? new Job(queue, "gone", {}, {}, call.id);
}

const verbs = {
  // A program opens the queue, which writes its version into `meta`.
  open: async ({ version, db, queue }) => {
    const opened = new packages[version].Queue(queue, { connection: connection(db) });
    await opened.waitUntilReady();
    await opened.close();
    return null;
  },
  add: async (call) => (await queueOf(call).add(call.name, call.data, call.opts)).id,
  addBulk: async (call) => (await queueOf(call).addBulk(call.jobs)).map((job) => job.id),
  flow: async (call) => {
    const ids = (node) => [node.job.id, ...(node.children ?? []).flatMap(ids)];
    return ids(await flowsOf(call).add(call.tree));
  },
  take: async (call) => {
    const worker = workerOf(call);
    const scripts = scriptsOf(worker);
    const raw = call.version === 6
      ? await scripts.moveToActive(call.token, worker.opts.name)
      : await scripts.moveToActive(await worker.client, call.token, worker.opts.name);
    return fetched(worker, raw, call.token);
  },
  renew: async (call) => {
    const worker = workerOf(call);
    const lost = await worker.extendJobLocks(call.ids, call.tokens, worker.opts.lockDuration);
    return lost.map(String);
  },
  complete: async (call) => {
    const { job } = await held(call);
    await job.moveToCompleted(call.value, call.token, false);
    return null;
  },
  fail: async (call) => {
    const { job } = await held(call);
    const { UnrecoverableError } = packages[call.version];
    const error = call.final ? new UnrecoverableError(call.reason) : new Error(call.reason);
    error.stack = call.stack;
    await job.moveToFailed(error, call.token, false);
    return null;
  },
  delay: async (call) => {
    const { job } = await held(call);
    await job.moveToDelayed(call.until, call.token);
    return null;
  },
  release: async (call) => {
    const { job } = await held(call);
    await job.moveToWait(call.token);
    return null;
  },
  waitChildren: async (call) => {
    const { job } = await held(call);
    return job.moveToWaitingChildren(call.token, call.child ? { child: call.child } : {});
  },
  stalled: async (call) => (await scriptsOf(workerOf(call)).moveStalledJobsToWait()).map(String),
  progress: async (call) => {
    const { job } = await held(call);
    await job.updateProgress(call.value);
    return null;
  },
  data: async (call) => {
    const { job } = await held(call);
    await job.updateData(call.value);
    return null;
  },
  log: async (call) => queueOf(call).addJobLog(call.id, call.line, call.keep || undefined),
  logs: async (call) => queueOf(call).getJobLogs(call.id),
  pause: async (call) => { await queueOf(call).pause(); return null; },
  resume: async (call) => { await queueOf(call).resume(); return null; },
  counts: async (call) => queueOf(call).getJobCounts(),
  state: async (call) => queueOf(call).getJobState(call.id),
  range: async (call) => {
    const jobs = await queueOf(call).getJobs([call.state], call.first, call.last, call.ascending);
    return jobs.map((job) => job?.id ?? null);
  },
  globalConcurrency: async (call) => {
    await queueOf(call).setGlobalConcurrency(call.value);
    return null;
  },
  globalRateLimit: async (call) => {
    await queueOf(call).setGlobalRateLimit(call.max, call.duration);
    return null;
  },
  schedule: async (call) => {
    const job = await queueOf(call).upsertJobScheduler(call.scheduler, call.repeat, call.template);
    return job?.id ?? null;
  },
  unschedule: async (call) => queueOf(call).removeJobScheduler(call.scheduler),
  // A watcher from the beginning of the events; `seen` has the events so far.
  watch: async (call) => {
    const { version, db, queue } = call;
    const seen = [];
    const watcher = new packages[version].QueueEvents(queue, {
      connection: connection(db), lastEventId: "0-0",
    });
    for (const name of ["added", "waiting", "active", "delayed", "progress", "completed", "failed",
      "retries-exhausted", "stalled", "drained", "retry"]) {
      watcher.on(name, (event) => seen.push({ event: name, ...event }));
    }
    watcher.on("error", (error) => seen.push({ event: "ERROR", message: error.message }));
    cached.set(`watch ${version} ${db} ${queue}`, { watcher, seen });
    await watcher.waitUntilReady();
    return null;
  },
  seen: async ({ version, db, queue }) => cached.get(`watch ${version} ${db} ${queue}`).seen,
  unwatch: async ({ version, db, queue }) => {
    await cached.get(`watch ${version} ${db} ${queue}`).watcher.close();
    return null;
  },
  job: async (call) => {
    const { job } = await held(call);
    const { id, name, data, progress, attemptsMade, attemptsStarted, failedReason, returnvalue } = job;
    return { id, name, data, progress, attemptsMade, attemptsStarted, failedReason, returnvalue };
  },
  remove: async (call) => queueOf(call).remove(call.id, { removeChildren: call.children !== false }),
  promote: async (call) => { await (await jobOf(call)).promote(); return null; },
  changeDelay: async (call) => { await (await jobOf(call)).changeDelay(call.delay); return null; },
  changePriority: async (call) => {
    await (await jobOf(call)).changePriority({ priority: call.priority, lifo: call.lifo });
    return null;
  },
  reprocess: async (call) => {
    await (await jobOf(call)).retry(call.state, {
      resetAttemptsMade: call.made, resetAttemptsStarted: call.started,
    });
    return null;
  },
  removeChildren: async (call) => {
    await (await jobOf(call)).removeUnprocessedChildren();
    return null;
  },
  detach: async (call) => {
    const job = await jobOf(call);
    return job.parentKey ? job.removeChildDependency() : false;
  },
  clearLogs: async (call) => { await (await jobOf(call)).clearLogs(call.keep || undefined); return null; },
  retryJobs: async (call) => {
    await queueOf(call).retryJobs({ state: call.state, count: call.count, timestamp: call.before });
    return null;
  },
  promoteJobs: async (call) => { await queueOf(call).promoteJobs({ count: call.count }); return null; },
  drain: async (call) => { await queueOf(call).drain(call.delayed); return null; },
  clean: async (call) => queueOf(call).clean(call.grace, call.limit, call.state),
  obliterate: async (call) => {
    try {
      await queueOf(call).obliterate({ force: call.force });
    } catch (error) {
      return error.message;
    }
    return null;
  },
  trimEvents: async (call) => { await queueOf(call).trimEvents(call.keep); return null; },
  removeGlobals: async (call) => {
    await queueOf(call).removeGlobalConcurrency();
    await queueOf(call).removeGlobalRateLimit();
    return null;
  },
  rateLimit: async (call) => {
    if (call.ms) await queueOf(call).rateLimit(call.ms);
    else await queueOf(call).removeRateLimitKey();
    return null;
  },
  maxed: async (call) => queueOf(call).isMaxed(),
  perPriority: async (call) => queueOf(call).getCountsPerPriority(call.priorities),
  metrics: async (call) => {
    const { meta, data } = await queueOf(call).getMetrics(call.state);
    return { total: meta.count, minutes: data.map(Number) };
  },
  dedupOwner: async (call) => queueOf(call).getDeduplicationJobId(call.dedup),
  dedupFree: async (call) => (await queueOf(call).removeDeduplicationKey(call.dedup)) > 0,
  schedulers: async (call) => (await queueOf(call).getJobSchedulers(0, -1, true)).map(
    ({ key, name, next, every, pattern, tz, limit, iterationCount }) => ({
      key, name, next, every: every ?? 0, pattern: pattern ?? "", tz: tz ?? "", limit: limit ?? null,
      made: iterationCount ?? 0,
    }),
  ),
  children: async (call) => {
    const found = await (await jobOf(call)).getDependencies();
    return {
      values: found.processed ?? {}, ignored: found.ignored ?? {}, failed: found.failed ?? [],
      pending: [...(found.unprocessed ?? [])].sort(),
    };
  },
};

async function answer(call) {
  now = call.now ?? null;
  try {
    return { value: (await verbs[call.op](call)) ?? null };
  } catch (error) {
    return { error: error.message, code: error.code ?? null };
  }
}

async function main() {
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
  process.exit(0);
}

main();
