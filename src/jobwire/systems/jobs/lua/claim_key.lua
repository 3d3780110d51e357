#!lua
-- claim_key: reserve an idempotency key for a job of another shard.
--
-- While shards are added, the shard in which a key was stored before decides whether it is used (G-5):
-- processes that have not read the new table submit there. The claim is the key with a stub, so that
-- their submissions are answered with the job that it names.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:stub, idempotency keys
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   job_id, task, ttl_s, idempotency, former, fingerprint, tenant
-- RETURNS
--   claimed    the key names this job of another shard, which may not exist yet; then its id
--   already    the key has this job, here; then its id
--   mismatch   one of the two, but from another body or for another tenant; then its id
-- CLAUSES G-5
-- INCLUDE keys
local job_id, task, ttl_s, idempotency, former, fingerprint, tenant = unpack(ARGV)

local function job_of_key(name)
  local id = redis.call('GET', idempotency_key(name))
  if not id then return nil end
  local word, key = 'already', job_key(id)
  if redis.call('EXISTS', key) == 0 then key = stub_key(id) end
  local values = redis.call('HMGET', key, 'job_id', 'fingerprint', 'tenant', 'claimed')
  if not values[1] then return nil end
  if values[4] then word = 'claimed' end
  return id, word, values[2] or '', values[3] or ''
end

local id, word, earlier, owner = job_of_key(idempotency)
if not id and former ~= '' then
  id, word, earlier, owner = job_of_key(former)
  if owner ~= tenant then id = nil end
end
if id then
  local differs = earlier ~= '' and fingerprint ~= '' and earlier ~= fingerprint
  return {(differs or owner ~= tenant) and 'mismatch' or word, id}
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('SET', idempotency_key(idempotency), job_id, 'EX', ttl_s)
redis.call('HSET', stub_key(job_id), 'job_id', job_id, 'task', task, 'status', 'queued',
  'created_ts', now, 'updated_ts', now, 'ttl_s', ttl_s, 'fingerprint', fingerprint, 'tenant', tenant,
  'claimed', '1')
redis.call('EXPIRE', stub_key(job_id), ttl_s)
return {'claimed', job_id}
