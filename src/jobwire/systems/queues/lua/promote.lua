-- promote: let a delayed job run as soon as a worker is free.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id
-- RETURNS
--   ok           the job waits
--   missing      there is no such job
--   wrong_state  the job is not delayed
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue
local id = ARGV[3]
if redis.call('ZREM', queue .. 'delayed', id) == 0 then
  return redis.call('EXISTS', queue .. id) == 1 and 'wrong_state' or 'missing'
end
push(queue, id, priority_of(queue, id), false)
emit_waiting(queue, false, id, 'delayed')
redis.call('HSET', queue .. id, 'delay', 0)
return 'ok'
