// A foreign worker, written from the published contract only.
//
//   node worker.js <url> <consumer> [key prefix]
//
// It runs any task: `{"sleep_ms": n}` waits, `{"fail": true}` ends in error, everything
// else is echoed. One job at a time; it renews nothing, reclaims nothing and fences nothing.
'use strict';
const { Client, pairs } = require('./resp.js');

const [url, consumer, prefix = ''] = process.argv.slice(2);
const queue = `${prefix}jobs:stream`;
const now = () => String(Date.now());

async function main() {
  const server = await Client.open(url);
  await server.call('XGROUP', 'CREATE', queue, 'workers', '0', 'MKSTREAM').catch(() => {});
  console.log('ready');
  for (;;) {
    const reply = await server.call(
      'XREADGROUP', 'GROUP', 'workers', consumer, 'COUNT', '1', 'BLOCK', '200',
      'STREAMS', queue, '>');
    if (!reply) continue;
    for (const [entry, flat] of reply[0][1]) await run(server, entry, pairs(flat));
  }
}

async function run(server, entry, message) {
  const job = `${prefix}job:${message.job_id}`;
  const ttl = (await server.call('HGET', job, 'ttl_s')) || '86400';

  async function update(...fields) {
    await server.call('HSET', job, ...fields, 'updated_ts', now());
    await server.call('EXPIRE', job, ttl);
  }
  async function emit(type, data) {
    const events = `${job}:events`;
    await server.call('XADD', events, '*', 'type', type, 'ts', now(), 'step', `node.${type}`,
      'data', JSON.stringify(data));
    await server.call('EXPIRE', events, ttl);
  }

  let payload;
  try {
    payload = JSON.parse(message.payload);
  } catch {
    payload = { _raw: message.payload };
  }
  await update('status', 'running');
  await emit('running', {});
  console.log(`started ${message.job_id}`);
  if (payload.sleep_ms) await new Promise((resolve) => setTimeout(resolve, payload.sleep_ms));
  if (payload.fail) {
    const error = { code: 'node_error', message: 'asked to fail' };
    await update('status', 'error', 'error', JSON.stringify(error));
    await emit('error', error);
  } else {
    await update('status', 'done', 'result', JSON.stringify({ by: consumer, echo: payload }));
    await emit('done', {});
  }
  await server.call('XACK', queue, 'workers', entry);
  console.log(`ended ${message.job_id}`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
