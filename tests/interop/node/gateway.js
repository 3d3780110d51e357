// A foreign gateway, written from the published contract only.
//
//   node gateway.js <url> [key prefix]
//
// Prints `listening <port>`. POST /v1/jobs, GET /v1/jobs/{id}, GET /v1/jobs/{id}/events (SSE).
'use strict';
const http = require('node:http');
const { randomUUID } = require('node:crypto');
const { Client, pairs } = require('./resp.js');

const [url, prefix = ''] = process.argv.slice(2);
const queue = `${prefix}jobs:stream`;
const TASKS = new Set(['chat', 'plan', 'code', 'tool', 'rag', 'embed', 'echo']);
const ENDS = new Set(['done', 'error', 'canceled']);
const MAX_QUEUE = 10000;
const now = () => String(Date.now());

async function create(server, body, key) {
  if (key) {
    const first = await server.call('GET', `${prefix}idempotency:${key}`);
    if (first) return [200, { job_id: first }];
  }
  if (!TASKS.has(body.task)) return [422, { error: 'unknown task' }];
  if ((await server.call('XLEN', queue)) >= MAX_QUEUE) return [429, { error: 'full' }];
  const id = randomUUID();
  const job = `${prefix}job:${id}`;
  const ttl = String(body.ttl_s || 86400);
  const payload = JSON.stringify(body.payload);
  const created = now();
  await server.call('HSET', job, 'job_id', id, 'task', body.task, 'payload', payload,
    'status', 'queued', 'created_ts', created, 'updated_ts', created, 'ttl_s', ttl,
    'result', '', 'error', '');
  await server.call('EXPIRE', job, ttl);
  await server.call('XADD', `${job}:events`, '*', 'type', 'queued', 'ts', now(),
    'step', 'gateway.enqueue', 'data', '{}');
  await server.call('EXPIRE', `${job}:events`, ttl);
  await server.call('XADD', queue, '*', 'job_id', id, 'task', body.task, 'payload', payload);
  if (key) await server.call('SET', `${prefix}idempotency:${key}`, id, 'EX', ttl);
  return [202, { job_id: id }];
}

async function read(server, id) {
  const job = pairs(await server.call('HGETALL', `${prefix}job:${id}`));
  if (!job.job_id) return [404, { error: 'no such job' }];
  for (const name of ['payload', 'result', 'error']) job[name] = job[name] ? JSON.parse(job[name]) : null;
  return [200, job];
}

async function follow(id, request, response) {
  const own = await Client.open(url);
  request.on('close', () => own.close());
  if (!(await own.call('EXISTS', `${prefix}job:${id}`))) {
    own.close();
    return answer(response, 404, { error: 'no such job' });
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write('event: hello\ndata: {}\n\n');
  let last = '0';
  for (;;) {
    const reply = await own.call('XREAD', 'BLOCK', '1000', 'STREAMS', `${prefix}job:${id}:events`, last);
    if (!reply) {
      response.write(': heartbeat\n\n');
      continue;
    }
    for (const [entry, flat] of reply[0][1]) {
      const event = pairs(flat);
      last = entry;
      response.write(`event: ${event.type}\ndata: ${event.data}\n\n`);
      if (ENDS.has(event.type)) {
        response.end();
        own.close();
        return undefined;
      }
    }
  }
}

function answer(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

async function handle(server, request, response) {
  const [, version, jobs, id, tail] = request.url.split('/');
  if (version !== 'v1' || jobs !== 'jobs') return answer(response, 404, {});
  if (request.method === 'POST') {
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = JSON.parse(Buffer.concat(parts).toString());
    return answer(response, ...(await create(server, body, request.headers['idempotency-key'])));
  }
  if (tail === 'events') return follow(id, request, response);
  return answer(response, ...(await read(server, id)));
}

async function main() {
  const server = await Client.open(url);
  const listener = http.createServer((request, response) => {
    handle(server, request, response).catch((error) => {
      if (!response.headersSent) answer(response, 500, { error: String(error) });
      else response.end();
    });
  });
  listener.listen(0, '127.0.0.1', () => console.log(`listening ${listener.address().port}`));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
