// npm BullMQ as a producer for the page's tests: node producer.js PACKAGES URL QUEUE WORD
//
// Adds a flow of three jobs, a scheduler and a job, prints their ids as JSON, and ends.
const { createRequire } = require("node:module");

const [folder, url, queue, word] = process.argv.slice(2);
const { FlowProducer, Queue } = createRequire(`${folder}/`)("bullmq");
const at = new URL(url);
const connection = {
  host: at.hostname, port: Number(at.port), username: at.username, password: at.password,
  maxRetriesPerRequest: null,
};

(async () => {
  const [flows, films] = [new FlowProducer({ connection }), new Queue(queue, { connection })];
  const flow = await flows.add({
    name: `assemble-${word}`, queueName: queue, data: {},
    children: [
      { name: "odd", queueName: queue, data: { text: "first" } },
      { name: `later-${word}`, queueName: queue, data: {}, opts: { delay: 3600000 } },
    ],
  });
  const scheduler = `nightly-${word}`;
  await films.upsertJobScheduler(scheduler, { pattern: "0 0 3 * * *", tz: "Europe/Berlin" }, { name: "odd" });
  const job = await films.add("odd", { text: `from node ${word}` }, { attempts: 3 });
  console.log(JSON.stringify({ flow: flow.job.id, scheduler, job: job.id }));
  await Promise.all([flows.close(), films.close()]);
})();
