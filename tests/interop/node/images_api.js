// A foreign API of images, written from the published contract. Its records are in memory.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const { AwsClient } = require('aws4fetch');
const { createClient } = require('redis');
const contract = require('./images_contract.js');

const [valkeyUrl, endpoint, bucket, accessKeyId, secretAccessKey, keyFile, port, gatewayUrl] =
  contract.fromEnvironment('VALKEY_URL', 'S3_ENDPOINT', 'S3_BUCKET', 'S3_ACCESS_KEY',
    'S3_SECRET_KEY', 'TOKEN_PRIVATE_KEY', 'PORT', 'GATEWAY_URL');
const privateKey = crypto.createPrivateKey(fs.readFileSync(keyFile));
const s3 = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1' });
const server = createClient({ url: valkeyUrl, name: 'foreign-api' });
const consumer = createClient({ url: valkeyUrl, name: 'foreign-api-results' });
const records = new Map();
const EVENTS = { done: 'ready', failed: 'failed' };

function token(claims) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const text = `${part({ alg: 'EdDSA', typ: 'JWT' })}.${part(claims)}`;
  return `${text}.${crypto.sign(null, Buffer.from(text), privateKey).toString('base64url')}`;
}

async function announce(body) {
  const imageId = crypto.randomUUID();
  const exp = Math.floor(Date.now() / 1000) + 900;
  records.set(imageId, { image_id: imageId, status: 'processing' });
  await contract.writeStage(server, imageId, 'queued');
  return {
    image_id: imageId,
    upload_url: `${gatewayUrl}/v1/uploads/${imageId}`,
    expires_at: new Date(exp * 1000).toISOString(),
    token: token({
      image_id: imageId, storage_key: `images/${imageId}.webp`, exp, max_size: 10 << 20,
      content_type: body.content_type, jti: crypto.randomUUID(),
    }),
  };
}

async function events(imageId, request, response) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  let seen = '';
  while (!request.destroyed) {
    const fields = await server.hGetAll(contract.status(imageId));
    const data = JSON.stringify({ ...fields, progress: Number(fields.progress) });
    if (fields.stage && data !== seen) {
      seen = data;
      const name = EVENTS[fields.stage] || 'processing';
      response.write(`id: ${fields.updated_at}\nevent: ${name}\ndata: ${data}\n\n`);
      if (EVENTS[fields.stage]) break;
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  response.end();
}

async function consume() {
  await consumer.xGroupCreate(contract.RESULTS, contract.GROUP, '0', { MKSTREAM: true })
    .catch((error) => { if (!error.message.includes('BUSYGROUP')) throw error; });
  console.log('ready');
  for (;;) {
    const read = await consumer.xReadGroup(contract.GROUP, 'node', { key: contract.RESULTS, id: '>' },
      { COUNT: 10, BLOCK: 500 });
    for (const { id, message } of read ? read[0].messages : []) {
      const record = records.get(message.image_id);
      if (record && message.status === 'processed') {
        const url = `${endpoint}/${bucket}/${message.storage_key}`;
        const signed = await s3.sign(url, { method: 'GET', aws: { signQuery: true } });
        Object.assign(record, { status: 'ready', sha256: message.sha256, url: signed.url,
          file_size: Number(message.file_size) });
      } else if (record) {
        const error = { code: message.error_code, message: message.error_message };
        Object.assign(record, { status: 'failed', error });
      }
      await consumer.xAck(contract.RESULTS, contract.GROUP, id);
    }
  }
}

async function serve(request, response) {
  const answer = (code, value) => {
    response.writeHead(code, { 'content-type': 'application/json' });
    response.end(JSON.stringify(value));
  };
  const [, , , imageId, more] = request.url.split('/');
  if (request.method === 'POST') {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    return answer(201, await announce(JSON.parse(Buffer.concat(chunks))));
  }
  if (!records.has(imageId)) return answer(404, { code: 'image_not_found' });
  return more ? events(imageId, request, response) : answer(200, records.get(imageId));
}

async function main() {
  await Promise.all([server.connect(), consumer.connect()]);
  const fail = (error) => { console.error(error); process.exit(1); };
  http.createServer((request, response) => { serve(request, response).catch(fail); })
    .listen(Number(port), '127.0.0.1', () => consume().catch(fail));
}
main();
