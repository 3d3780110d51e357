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
-- INCLUDE keys make
local job_id, task, payload, ttl_s, delay_ms, max_queue = unpack(ARGV, 1, 6)
local idempotency, fingerprint, tenant, given = unpack(ARGV, 7, 10)

-- Only an id that the caller gave can have been asked for before.
if given == '1' and redis.call('EXISTS', job_key(job_id)) == 1 then
  local created = redis.call('HGET', job_key(job_id), 'created_ts')
  return {'submitted', job_id, tonumber(created) or 0}
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

return make(job_id, task, payload, ttl_s, delay_ms, idempotency, tenant, 11)
