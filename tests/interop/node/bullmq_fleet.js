// A program of a Node team with the official package: node bullmq_fleet.js PACKAGES URL VERSION
//
// Works on queues, submits jobs and waits for their results, by commands as JSON lines on stdin.
// Answers each with {"value"} or {"error", "code"}. Ends with its stdin.
const { createRequire } = require("node:module");
const { createInterface } = require("node:readline");

const [folder, url, version] = process.argv.slice(2);
const bullmq = createRequire(`${folder}/`)(version === "5" ? "bullmq5" : "bullmq");
const at = new URL(url);
const connection = {
  host: at.hostname, port: Number(at.port), username: at.username, password: at.password,
  maxRetriesPerRequest: null,
};
const by = `node${version}`;
const WAIT_MS = 60_000;

async function handle(job) {
  if (job.name === "parent") {
    const values = Object.values(await job.getChildrenValues());
    return { by, children: values.map((value) => value.by).sort() };
  }
  if (job.name === "broken" || (job.name === "flaky" && job.attemptsMade === 0)) {
    throw new Error(job.name);
  }
  if (job.data.ms) await new Promise((resolve) => setTimeout(resolve, job.data.ms));
  // A cut connection is not a failure of the job.
  await job.updateProgress(50).catch(() => {});
  await job.log(`handled by ${by}`).catch(() => {});
  return { by, n: job.data.n };
}

const watchers = new Map();
async function watcherOf(queue) {
  if (!watchers.has(queue)) {
    const watcher = new bullmq.QueueEvents(queue, { connection });
    watcher.seen = { progress: 0, errors: [] };
    watcher.on("progress", () => { watcher.seen.progress += 1; });
    watcher.on("error", (error) => watcher.seen.errors.push(error.message));
    watchers.set(queue, watcher);
    await watcher.waitUntilReady();
  }
  return watchers.get(queue);
}

const producers = new Map();
function producerOf(queue, events) {
  if (!producers.has(queue)) {
    const streams = { events: { maxLen: events } };
    const producer = new bullmq.Queue(queue, { connection, streams });
    producer.on("error", () => {});
    producers.set(queue, producer);
  }
  return producers.get(queue);
}

const verbs = {
  work: async ({ queue, options }) => {
    const worker = new bullmq.Worker(queue, handle, {
      connection, concurrency: 5, name: by, ...options,
    });
    worker.on("error", () => {});
    await worker.waitUntilReady();
    return null;
  },
  produce: async ({ queue, count }) => {
    const watcher = await watcherOf(queue);
    const producer = new bullmq.Queue(queue, { connection });
    const jobs = await producer.addBulk(
      Array.from({ length: count }, (_, n) => ({ name: "task", data: { n } })),
    );
    return Promise.all(jobs.map((job) => job.waitUntilFinished(watcher, WAIT_MS)));
  },
  add: async ({ queue, jobs, events }) => {
    const producer = producerOf(queue, events);
    return (await producer.addBulk(jobs)).length;
  },
  flow: async ({ parent, children }) => {
    const watcher = await watcherOf(parent);
    const tree = await new bullmq.FlowProducer({ connection }).add({
      name: "parent", queueName: parent,
      children: children.map((queueName, n) => ({ name: "task", queueName, data: { n } })),
    });
    return tree.job.waitUntilFinished(watcher, WAIT_MS);
  },
  view: async ({ queue, id }) => {
    const viewer = producerOf(queue, 10_000);
    const state = await viewer.getJobState(id); // first: the rest is not older than it
    const job = await viewer.getJob(id);
    return {
      state, data: job.data, logs: (await viewer.getJobLogs(id)).logs,
      attemptsMade: job.attemptsMade, attemptsStarted: job.attemptsStarted,
      returnvalue: job.returnvalue, children: Object.values(await job.getChildrenValues()),
      pending: (await job.getDependenciesCount()).unprocessed,
      limited: (await viewer.getRateLimitTtl()) > 0,
    };
  },
  promote: async ({ queue, id }) => {
    await (await producerOf(queue, 10_000).getJob(id)).promote();
    return null;
  },
  workers: async ({ queue }) =>
    (await new bullmq.Queue(queue, { connection }).getWorkers()).length,
  seen: async ({ queue }) => (await watcherOf(queue)).seen,
};

async function main() {
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    const call = JSON.parse(line);
    let answer;
    try {
      answer = { value: await verbs[call.op](call) };
    } catch (error) {
      answer = { error: error.message, code: null };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
