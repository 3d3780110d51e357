-- reprocess: run a finished job again.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, state, reset_made, reset_started
-- RETURNS
--   ok           the job waits
--   missing      there is no such job
--   wrong_state  the job is not in that state
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue reprocess
local id, state = ARGV[3], ARGV[4]
local key = queue .. id
if redis.call('EXISTS', key) == 0 then return 'missing' end
if redis.call('ZREM', queue .. state, id) == 0 then return 'wrong_state' end
if ARGV[5] == '1' then redis.call('HDEL', key, 'atm') end
if ARGV[6] == '1' then redis.call('HDEL', key, 'ats') end
local opts = decoded(redis.call('HGET', key, 'opts')) or {}
push(queue, id, priority_of(queue, id), opts.lifo)
forget_outcome(queue, id, state)
emit_waiting(queue, true, id, state)
return 'ok'
