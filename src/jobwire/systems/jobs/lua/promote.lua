#!lua flags=allow-oom
-- promote: move delayed jobs that are due to the queue.
--
-- The entry is written before the job leaves `jobs:delayed`, in one step. Every
-- process does this, so a call moves a bounded number.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps,
-- idempotency:<name>, jobs:delayed
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, scan_limit
-- RETURNS
--   moved   how many were queued
--   more    1 if there may be more of them
--   next    in how many ms the next one is due; -1 without one
-- CLAUSES J-9 J-35 L-11
-- INCLUDE keys job state
local scan_limit = tonumber(ARGV[3])
local moved = 0

local due = redis.call('ZRANGEBYSCORE', delayed_key, '-inf', now_ms, 'LIMIT', 0, scan_limit)
for _, id in ipairs(due) do
  local job = try_read_job(id, 'task', 'payload', 'queue')
  if job.status == 'queued' then
    select_queue(job.queue)
    enqueue(id, job.task, job.payload)
    extend_ttl(id, expiry_of(job.ttl_s), job.idempotency_key)
    moved = moved + 1
  end
  redis.call('ZREM', delayed_key, id)
end
local first = redis.call('ZRANGE', delayed_key, 0, 0, 'WITHSCORES')
local next_ms = first[2] and math.max(0, math.ceil(first[2] - now_ms)) or -1
return {moved, #due == scan_limit and 1 or 0, next_ms}
