-- change_delay: let a delayed job wait for another time, counted from now.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, delay_ms
-- RETURNS
--   ok           the job is due at the new time
--   missing      there is no such job
--   wrong_state  the job is not delayed
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue
local id, delay_ms = ARGV[3], tonumber(ARGV[4])
if redis.call('EXISTS', queue .. id) == 0 then return 'missing' end
if not redis.call('ZSCORE', queue .. 'delayed', id) then return 'wrong_state' end
redis.call('HSET', queue .. id, 'delay', text(delay_ms))
delay(queue, id, delay_ms)
mark_delayed(queue)
return 'ok'
