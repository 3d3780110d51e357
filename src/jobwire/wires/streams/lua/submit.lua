#!lua
-- submit: make a job, once.
--
-- Hash, first event and place in line appear together or not at all: a crash
-- leaves no half-made job, and a full server refuses the whole. Asked twice with
-- the same job id, or with an idempotency key that has its job, it makes nothing.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:delayed, jobs:open, jobs:index[:<tenant>], jobs:tenants,
-- jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   job_id, task, payload, ttl_s, delay_ms, max_queue, idempotency, fingerprint, tenant, given
--   ...   extra fields of the hash: name, value
-- RETURNS
--   submitted   the job is made; then its id, and when
--   already     the idempotency key has this job; then its id
--   mismatch    the same, but made from another body; then its id
--   full        too many jobs wait; then how many
-- CLAUSES J-1 J-2 J-3 J-4 J-7 J-9 J-10 J-11 J-12
-- INCLUDE keys
local job_id, task, payload, ttl_s, delay_ms, max_queue = unpack(ARGV, 1, 6)
local idempotency, fingerprint, tenant, given = unpack(ARGV, 7, 10)
local job, events = job_key(job_id), events_key(job_id)

-- Only an id that the caller gave can have been asked for before.
if given == '1' and redis.call('EXISTS', job) == 1 then
  return {'submitted', job_id, tonumber(redis.call('HGET', job, 'created_ts')) or 0}
end
if idempotency ~= '' then
  local first = redis.call('GET', idempotency_key(idempotency))
  -- A key whose job is gone is as new.
  if first and redis.call('EXISTS', job_key(first)) == 1 then
    local body = redis.call('HGET', job_key(first), 'fingerprint')
    if body and body ~= '' and fingerprint ~= '' and body ~= fingerprint then
      return {'mismatch', first}
    end
    return {'already', first}
  end
end

local waiting = redis.call('XLEN', queue) + redis.call('ZCARD', delayed_key)
if waiting >= tonumber(max_queue) then return {'full', waiting} end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', now_ms)

local fields = {
  'job_id', job_id, 'task', task, 'payload', payload, 'status', 'queued',
  'created_ts', now, 'updated_ts', now, 'ttl_s', ttl_s, 'result', '', 'error', ''
}
for at = 11, #ARGV do fields[#fields + 1] = ARGV[at] end
redis.call('HSET', job, unpack(fields))
redis.call('EXPIRE', job, ttl_s)
redis.call('XADD', events, '*',
  'type', 'queued', 'ts', now, 'step', 'gateway.enqueue', 'data', '{}')
redis.call('EXPIRE', events, ttl_s)
if delay_ms == '0' then
  local entry = redis.call('XADD', queue, '*', 'job_id', job_id, 'task', task, 'payload', payload)
  redis.call('HSET', job, 'entry_id', entry)
else
  redis.call('ZADD', delayed_key, now_ms + delay_ms, job_id)
end

if idempotency ~= '' then redis.call('SET', idempotency_key(idempotency), job_id, 'EX', ttl_s) end
redis.call('ZADD', open_key, now_ms + ttl_s * 1000, job_id)
redis.call('ZADD', index_key(tenant), now_ms, job_id)
if tenant ~= '' then redis.call('ZADD', tenants_key, now_ms, tenant) end
local minute = stats_key(math.floor(now_ms / 60000))
if redis.call('HINCRBY', minute, 'submissions', 1) == 1 then
  redis.call('EXPIRE', minute, 7200)
end
return {'submitted', job_id, now_ms}
