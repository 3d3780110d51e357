#!lua flags=allow-oom
-- pause: let no worker start another job.
--
-- The waiting jobs of a queue that npm BullMQ 5 has opened are put where its resume looks for them,
-- at most 7,000 in a call.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, first
-- RETURNS
--   left     how many jobs are still in the list `wait`; call again with `first` 0
-- CLAUSES B-8 B-10 B-22
-- INCLUDE queue events enqueue
local paused, wait = queue .. 'paused', queue .. 'wait'
local left = 0
if has_paused_list(queue, redis.call('HGET', meta, 'version')) and redis.call('EXISTS', wait) == 1 then
  if redis.call('EXISTS', paused) == 0 then
    redis.call('RENAME', wait, paused)
  else
    -- Behind those that are there already: the next job is at the right end.
    local ids = redis.call('LRANGE', wait, -7000, -1)
    for at = #ids, 1, -1 do redis.call('LPUSH', paused, ids[at]) end
    redis.call('LTRIM', wait, 0, -(#ids + 1))
    left = redis.call('LLEN', wait)
  end
end
redis.call('HSET', meta, 'paused', 1)
redis.call('DEL', queue .. 'marker')
if ARGV[3] == '1' then emit(queue, 'paused') end
return left
