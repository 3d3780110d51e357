// Node BullMQ, as in its documentation: node bullmq_peer.mjs URL SERVER_PID MODE N [QUEUES]
// With QUEUES the jobs are spread over so many queues, whose workers share a connection and 100 slots.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.PEERS}/`);
const { Queue, Worker } = require("bullmq");
const IORedis = require("ioredis");

const [url, serverPid, mode, count, spread = "1"] = process.argv.slice(2);
const jobs = Number(count);
const names = ["bench", ...Array.from({ length: Number(spread) - 1 }, (_, at) => `bench-${at + 1}`)];
const connect = () => new IORedis(url.replace("valkey:", "redis:"), { maxRetriesPerRequest: null });

function now() {
  const fields = readFileSync(`/proc/${serverPid}/stat`, "utf8").split(")").pop().trim().split(" ");
  const own = process.cpuUsage();
  return {
    client: (own.user + own.system) / 1e6,
    server: (Number(fields[11]) + Number(fields[12])) / 100,
    wall: performance.now() / 1e3,
  };
}

function figures(name, then) {
  const since = now();
  return {
    [`${name}_client_us`]: ((since.client - then.client) / jobs) * 1e6,
    [`${name}_server_us`]: ((since.server - then.server) / jobs) * 1e6,
    [`${name}_per_s`]: jobs / (since.wall - then.wall),
  };
}

const connection = connect();
const queues = names.map((name) => new Queue(name, { connection }));
const queue = queues[0];
await Promise.all(queues.map((each) => each.waitUntilReady()));

if (mode === "latency") {
  const waits = [];
  const worker = new Worker("bench", async (job) => { waits.push(performance.now() - job.data.at); },
    { connection: connect(), concurrency: 100 });
  await worker.waitUntilReady();
  for (let number = 0; number < jobs; number++) {
    await queue.add("timed", { at: performance.now() });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  while (waits.length < jobs) await new Promise((resolve) => setTimeout(resolve, 10));
  waits.sort((a, b) => a - b);
  console.log(JSON.stringify({ p50_ms: waits[jobs >> 1], p99_ms: waits[Math.floor(jobs * 0.99)] }));
  await worker.close();
} else {
  let next = 0;
  let then = now();
  await Promise.all(Array.from({ length: 100 }, async () => {
    while (next < jobs) {
      const n = next++;
      await queues[n % queues.length].add("noop", { n });
    }
  }));
  const submitted = figures("submit", then);
  let left = jobs;
  let ended;
  const all = new Promise((resolve) => { ended = resolve; });
  then = now();
  const concurrency = Math.max(1, Math.floor(100 / names.length));
  const shared = connect();
  const workers = names.map((name) => new Worker(name,
    async () => { if (--left === 0) ended(); }, { connection: shared, concurrency }));
  await all;
  console.log(JSON.stringify({ ...submitted, ...figures("work", then) }));
  await Promise.all(workers.map((each) => each.close()));
}
process.exit(0);
