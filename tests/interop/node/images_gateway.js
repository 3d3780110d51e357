// A foreign upload gateway, written from the published contract.
//
// It does not process pictures: it publishes a grey pixel. A photo that contains the text
// `fail:CODE` fails with that code. It keeps nothing over a restart.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const { AwsClient } = require('aws4fetch');
const { createClient } = require('redis');
const contract = require('./images_contract.js');

const [valkeyUrl, endpoint, bucket, accessKeyId, secretAccessKey, keyFile, port] =
  contract.fromEnvironment('VALKEY_URL', 'S3_ENDPOINT', 'S3_BUCKET', 'S3_ACCESS_KEY',
    'S3_SECRET_KEY', 'TOKEN_PUBLIC_KEY', 'PORT');
const publicKey = crypto.createPublicKey(fs.readFileSync(keyFile));
const s3 = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1' });
const server = createClient({ url: valkeyUrl, name: 'foreign-gateway' });
const GREY_PIXEL = Buffer.from('UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==', 'base64');
const STEPS = ['validating', 'decoding', 'processing', 'encoding', 'uploading'];

function claimsOf(authorization) {
  const [head, body, signature] = (authorization || '').replace(/^Bearer /i, '').split('.');
  const part = (text) => JSON.parse(Buffer.from(text, 'base64url'));
  try {
    const signed = crypto.verify(null, Buffer.from(`${head}.${body}`), publicKey,
      Buffer.from(signature, 'base64url'));
    const claims = part(body);
    if (signed && part(head).alg === 'EdDSA' && claims.exp > Date.now() / 1000) return claims;
  } catch { /* not a token */ }
  return null;
}

async function receive(request, response) {
  const answer = (code, text) => {
    response.writeHead(code, { 'content-type': 'application/json' });
    response.end(JSON.stringify(text));
  };
  const imageId = request.url.split('/').pop();
  const claims = claimsOf(request.headers.authorization);
  if (!claims) return answer(401, { code: 'bad_upload_token' });
  if (claims.image_id !== imageId) return answer(403, { code: 'other_image' });
  const claim = contract.upload(imageId);
  const claimed = await server.set(claim, 'claimed',
    { condition: 'NX', expiration: { type: 'EX', value: contract.STATUS_TTL_S } });
  if (!claimed) return answer(409, { code: 'already_uploaded' });
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (body.length > claims.max_size) {
    await server.del(claim);
    return answer(413, { code: 'too_large' });
  }
  answer(202, { status: 'accepted' });
  await work(claims, body);
}

async function work(claims, body) {
  const imageId = claims.image_id;
  const code = (/fail:([A-Z_]+)/.exec(body.toString('latin1')) || [])[1];
  for (const stage of STEPS) await contract.writeStage(server, imageId, stage);
  if (code) {
    const message = `the foreign gateway failed it: ${code}`;
    await contract.writeStage(server, imageId, 'failed', message);
    return publish({
      image_id: imageId, status: 'failed', error_code: code, error_message: message,
      failed_at: contract.now(),
    });
  }
  const stored = await s3.fetch(`${endpoint}/${bucket}/${claims.storage_key}`,
    { method: 'PUT', body: GREY_PIXEL, headers: { 'content-type': 'image/webp' } });
  if (!stored.ok) throw new Error(await stored.text());
  await contract.writeStage(server, imageId, 'done');
  return publish({
    image_id: imageId,
    status: 'processed',
    storage_key: claims.storage_key,
    sha256: crypto.createHash('sha256').update(GREY_PIXEL).digest('hex'),
    etag: stored.headers.get('etag').replaceAll('"', ''),
    file_size: String(GREY_PIXEL.length),
    content_type: 'image/webp',
    original_width: '4032',
    original_height: '3024',
    processed_width: '1',
    processed_height: '1',
    processed_at: contract.now(),
  });
}

function publish(fields) {
  return server.xAdd(contract.RESULTS, '*', fields,
    { TRIM: { strategy: 'MAXLEN', strategyModifier: '~', threshold: 1000 } });
}

async function main() {
  await server.connect();
  http.createServer((request, response) => {
    receive(request, response).catch((error) => { console.error(error); process.exit(1); });
  }).listen(Number(port), '127.0.0.1', () => console.log('ready'));
}
main();
