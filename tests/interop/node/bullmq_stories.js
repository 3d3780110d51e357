// A program of a Node team for the scenarios: node bullmq_stories.js PACKAGES URL
//
// One worker per queue of a scenario, and one method of the official package per line.
const { createRequire } = require("node:module");
const { createInterface } = require("node:readline");

const [folder, url] = process.argv.slice(2);
const {
  DelayedError, FlowProducer, Queue, QueueEvents, QueueEventsProducer, RateLimitError,
  UnrecoverableError, WaitingChildrenError, Worker,
} = createRequire(`${folder}/`)("bullmq");
const at = new URL(url);
const connection = {
  host: at.hostname, port: Number(at.port), username: at.username, password: at.password,
  maxRetriesPerRequest: null,
};
const WAIT_MS = 60_000;
const LIMIT_MS = 250;

async function handle(job, token) {
  if (job.name === "fail") throw new Error("no disk");
  if (job.name === "never") throw new UnrecoverableError("never");
  if (job.name === "flaky" && job.attemptsMade < 1) throw new Error("not yet");
  if (job.name === "join") return Object.values(await job.getChildrenValues()).sort();
  if (job.name === "steps") {
    await job.updateProgress(50);
    await job.log("half of it");
  }
  if (job.name === "slow") await new Promise((resolve) => setTimeout(resolve, 20));
  if (job.name === "announce") {
    const producer = cached(`producer ${job.queueName}`, () =>
      new QueueEventsProducer(job.queueName, { connection }));
    await producer.publishEvent({ eventName: "scene", jobId: job.id, data: '{"n":1}' });
  }
  if (job.name === "postponed" || job.name === "limited") return interrupted(job, token);
  if (job.name === "saved") return saved(job);
  if (job.name === "family") return family(job, token);
  return job.data.value ?? job.name;
}

async function interrupted(job, token) {
  if (job.attemptsStarted > 1) return "later";
  if (job.name === "postponed") {
    await job.moveToDelayed(Date.now() + 30, token);
    throw new DelayedError();
  }
  await queueOf(job.queueName).rateLimit(LIMIT_MS);
  throw new RateLimitError();
}

async function saved(job) {
  if (job.data.step) return job.data.step;
  await job.updateData({ step: 2 });
  throw new Error("interrupted");
}

async function family(job, token) {
  if (!job.data.waited) {
    const parent = { id: job.id, queue: job.queueQualifiedName };
    for (const value of ["a", "b"]) await queueOf(job.queueName).add("echo", { value }, { parent });
    await job.updateData({ waited: true });
    if (await job.moveToWaitingChildren(token)) throw new WaitingChildrenError();
  }
  return Object.values(await job.getChildrenValues()).sort();
}

const made = new Map();
function cached(key, make) {
  if (!made.has(key)) made.set(key, make());
  return made.get(key);
}
const queueOf = (name) => cached(`queue ${name}`, () => new Queue(name, { connection }));
// From the first event of the queue: the first read may come after it.
const eventsOf = (name) =>
  cached(`events ${name}`, () => new QueueEvents(name, { connection, lastEventId: "0" }));

const workers = new Map();
const taken = new Map();
const records = new Map();

const verbs = {
  work: async ({ queue, options }) => {
    const worker = new Worker(queue, handle, { connection, ...options });
    worker.on("error", () => {});
    await worker.waitUntilReady();
    workers.set(queue, worker);
    return null;
  },
  stop: async ({ queue }) => {
    await workers.get(queue)?.close(true);
    workers.delete(queue);
    return null;
  },
  take: async ({ queue, token }) => {
    const worker = cached(`hand ${queue}`, () => new Worker(queue, null, { connection }));
    const job = await worker.getNextJob(token, { block: false });
    taken.set(token, job);
    return { id: job.id };
  },
  taken: async ({ token, method, args }) => {
    const answer = await taken.get(token)[method](...args);
    return typeof answer === "number" ? answer : null;
  },
  fail: async ({ token, reason }) => {
    await taken.get(token).moveToFailed(new Error(reason), token, false);
    return null;
  },
  record: async ({ queue, names }) => {
    const seen = [];
    records.set(queue, seen);
    for (const name of names) {
      eventsOf(queue).on(name, (fields) => seen.push([name, fields]));
    }
    return null;
  },
  recorded: async ({ queue }) => records.get(queue),
  watch: async ({ queue }) => { await eventsOf(queue).waitUntilReady(); return null; },
  wait: async ({ queue, id }) => {
    const job = await queueOf(queue).getJob(id);
    try {
      return { value: await job.waitUntilFinished(eventsOf(queue), WAIT_MS) };
    } catch (error) {
      return { error: error.message };
    }
  },
  queue: async ({ queue, method, args }) => {
    const answer = await queueOf(queue)[method](...args);
    return Array.isArray(answer) ? answer.map((each) => each?.id ?? each) : answer?.id ?? answer;
  },
  job: async ({ queue, id, method, args }) =>
    (await queueOf(queue).getJob(id))[method](...(args ?? [])),
  flow: async ({ tree }) => {
    const producer = cached("flows", () => new FlowProducer({ connection }));
    return (await producer.add(tree)).job.id;
  },
};

async function main() {
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    const call = JSON.parse(line);
    let answer;
    try {
      answer = { value: (await verbs[call.op](call)) ?? null };
    } catch (error) {
      answer = { error: error.message, code: error.code ?? null };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
