-- change_priority: give a job another priority; one that waits takes its new place at once.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, priority, lifo
-- RETURNS
--   ok       the hash has the priority
--   missing  there is no such job
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue
local id, priority, lifo = ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
if redis.call('EXISTS', queue .. id) == 0 then return 'missing' end
if redis.call('ZREM', queue .. 'prioritized', id) == 1
  or redis.call('LREM', queue .. 'wait', -1, id) == 1
  or redis.call('LREM', queue .. 'paused', -1, id) == 1 then
  if priority > 0 and lifo then
    -- Before all others of its priority. An idle worker was woken when the job came.
    redis.call('ZADD', queue .. 'prioritized', priority * 4294967296, id)
  else
    push(queue, id, priority, lifo)
  end
end
redis.call('HSET', queue .. id, 'priority', text(priority))
return 'ok'
