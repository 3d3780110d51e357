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
if redis.call('EXISTS', queue .. id) == 0 then return { 'missing' } end
local found = unlock(queue, id, ARGV[4])
if found ~= 'ok' then return refused_verb(queue, id, ARGV[4], 'release', found) end
remember_verb(queue, id, ARGV[4], 'release')
if redis.call('LREM', queue .. 'active', 1, id) > 0 then
  local priority = priority_of(queue, id)
  if priority > 0 then
    redis.call('ZADD', queue .. 'prioritized', text(priority * 4294967296), id)
  else
    push(queue, id, 0, true)
  end
  emit_waiting(queue, true, id, 'active')
end
local left = redis.call('PTTL', queue .. 'limiter')
return { 'ok', left > 0 and left or 0 }
