// The constants of the image messages, from their published contract.
'use strict';

const STATUS_TTL_S = 3600;
const STAGES = {
  queued: '0', validating: '5', decoding: '15', processing: '30', encoding: '70', uploading: '85',
  done: '100', failed: '-1',
};
const status = (imageId) => `image:status:${imageId}`;
const upload = (imageId) => `image:upload:${imageId}`;
const RESULTS = 'image:result';
const GROUP = 'api-workers';
const now = () => new Date().toISOString();

async function writeStage(server, imageId, stage, error) {
  const fields = { stage, progress: STAGES[stage], updated_at: now() };
  if (error) fields.error = error;
  await server.hSet(status(imageId), fields);
  await server.expire(status(imageId), STATUS_TTL_S);
}

function fromEnvironment(...names) {
  return names.map((name) => {
    if (!process.env[name]) throw new Error(`${name} is not set`);
    return process.env[name];
  });
}

module.exports = { STATUS_TTL_S, RESULTS, GROUP, status, upload, now, writeStage, fromEnvironment };
