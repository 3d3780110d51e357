#!lua flags=allow-oom
-- release: give a job back unfinished; it is the next one to be served.
--
-- The attempt was started and stays counted as started, as on every program of this wire.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, token
-- RETURNS
--   ok            the job waits; for how many ms the queue is rate limited follows
--   missing       there is no such job
--   no_lock       the lock has expired; nothing was written
--   foreign_lock  another worker has the lock; nothing was written
-- CLAUSES B-8 B-10 B-17
-- INCLUDE queue events enqueue lock memory
local id = ARGV[3]
local left = leave_active(queue, id, ARGV[4], nil, function()
  local priority = priority_of(queue, id)
  if priority > 0 then
    redis.call('ZADD', queue .. 'prioritized', text(priority * 4294967296), id)
  else
    push(queue, id, 0, true)
  end
end)
if left ~= 'ok' and left ~= 'not_active' then
  return refused_verb(queue, id, ARGV[4], 'release', left)
end
remember_verb(queue, id, ARGV[4], 'release')
if left == 'ok' then emit_waiting(queue, true, id, 'active') end
local limited_ms = redis.call('PTTL', queue .. 'limiter')
return { 'ok', limited_ms > 0 and limited_ms or 0 }
