#!lua flags=allow-oom
-- promote: move delayed and suspended jobs that are due to the queue.
--
-- The entry is written before the job leaves `jobs:delayed` or `jobs:suspended`, in one step. Every
-- process does this, so a call moves a bounded number.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps,
-- job:<id>:awaits, idempotency:<name>, jobs:delayed, jobs:suspended, jobs:open, jobs:bytes:<tenant>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, scan_limit
-- RETURNS
--   moved   how many were queued
--   more    1 if there may be more of them
-- CLAUSES J-9 J-35 D-8
-- INCLUDE keys job state bytes awaits
local scan_limit = tonumber(ARGV[3])
local moved = 0

local function promote(id)
  local job = try_read_job(id, 'task', 'payload', 'queue')
  if job.status ~= 'queued' then return end
  select_queue(job.queue)
  enqueue(id, job.task, job.payload)
  extend_ttl(id, expiry_of(job.ttl_s), job.idempotency_key)
  moved = moved + 1
end

-- A job that the server refuses to queue does not keep the others: reconcile tries again.
local due = redis.call('ZRANGEBYSCORE', delayed_key, '-inf', now_ms, 'LIMIT', 0, scan_limit)
for _, id in ipairs(due) do
  isolated(promote, id)
  redis.call('ZREM', delayed_key, id)
end

-- What a suspended job has waited for in vain is recorded, before it goes on.
local function resume(id)
  awaits().end_waits(id, redis.call('SMEMBERS', awaits_key(id)))
  if awaits().wake(id, 'duty.wake') then moved = moved + 1 end
end
local resumed = redis.call('ZRANGEBYSCORE', suspended_key, '-inf', now_ms, 'LIMIT', 0, scan_limit)
for _, id in ipairs(resumed) do
  if redis.pcall('HGET', job_key(id), 'status') ~= 'queued' then
    awaits().forget(id)
  elseif isolated(resume, id) == 'refused' then
    redis.call('ZREM', suspended_key, id)
  end
end

return {moved, (#due == scan_limit or #resumed == scan_limit) and 1 or 0}
