#!lua flags=allow-oom
-- delay: end an attempt and let the job wait for a while, for a backoff or because its handler asks.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, token, delay_ms, counts
--   ...   fields of the hash to set, name and value
-- RETURNS
--   ok            the job is delayed
--   missing       there is no such job
--   no_lock       the lock has expired; nothing was written
--   foreign_lock  another worker has the lock; nothing was written
--   not_active    the job is not active
-- CLAUSES B-5 B-10 B-16
-- INCLUDE queue events enqueue lock memory
local id, delay_ms, counts = ARGV[3], tonumber(ARGV[5]), ARGV[6] == '1'
local due = delay_ms > 0 and now + delay_ms or now
local left = leave_active(queue, id, ARGV[4], { unpack(ARGV, 7) }, function()
  push_delayed(queue, id, due)
end)
if left ~= 'ok' then return refused_verb(queue, id, ARGV[4], 'delay', left) end
remember_verb(queue, id, ARGV[4], 'delay')
if counts then count(queue .. id, 'atm') end
redis.call('HSET', queue .. id, 'delay', text(delay_ms))
emit_trimmed(queue, 'delayed', 'jobId', id, 'delay', text(due))
if extras and counts then emit_trimmed(queue, 'retry', 'jobId', id, 'delay', text(delay_ms)) end
mark_delayed(queue)
return { 'ok' }
