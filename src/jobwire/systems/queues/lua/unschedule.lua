#!lua flags=allow-oom
-- unschedule: remove a job scheduler and its pending iteration, if that one is delayed.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, scheduler
-- RETURNS
--   ok       the scheduler is gone; an iteration that waits or runs already goes on
--   missing  there is no such scheduler
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue parents remove
local scheduler = ARGV[3]
local due = redis.call('ZSCORE', queue .. 'repeat', scheduler)
if not due then return 'missing' end
local id = 'repeat:' .. scheduler .. ':' .. text(tonumber(due))
if redis.call('ZREM', queue .. 'delayed', id) == 1 then
  delete_job(queue, id)
  emit(queue, 'removed', 'jobId', id, 'prev', 'delayed')
end
redis.call('ZREM', queue .. 'repeat', scheduler)
redis.call('DEL', queue .. 'repeat:' .. scheduler)
return 'ok'
