// A program of a Node team for the stories: node bullmq_stories.js PACKAGES URL
//
// One worker for each queue that a story asks for, and one method of the official package a line.
const { createRequire } = require("node:module");
const { createInterface } = require("node:readline");

const [folder, url] = process.argv.slice(2);
const { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } =
  createRequire(`${folder}/`)("bullmq");
const at = new URL(url);
const connection = {
  host: at.hostname, port: Number(at.port), username: at.username, password: at.password,
  maxRetriesPerRequest: null,
};
const WAIT_MS = 60_000;

async function handle(job) {
  if (job.name === "fail") throw new Error("no disk");
  if (job.name === "never") throw new UnrecoverableError("never");
  if (job.name === "flaky" && job.attemptsMade < 1) throw new Error("not yet");
  if (job.name === "join") return Object.values(await job.getChildrenValues()).sort();
  if (job.name === "steps") {
    await job.updateProgress(50);
    await job.log("half of it");
  }
  return job.data.value ?? job.name;
}

const made = new Map();
function cached(key, make) {
  if (!made.has(key)) made.set(key, make());
  return made.get(key);
}
const queueOf = (name) => cached(`queue ${name}`, () => new Queue(name, { connection }));
const eventsOf = (name) => cached(`events ${name}`, () => new QueueEvents(name, { connection }));

const verbs = {
  work: async ({ queue, options }) => {
    const worker = new Worker(queue, handle, { connection, ...options });
    worker.on("error", () => {});
    await worker.waitUntilReady();
    return null;
  },
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
