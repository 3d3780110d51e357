#!lua flags=allow-oom
-- resume: let workers start jobs again.
--
-- Older programs move waiting jobs to the list `paused`. Those are put back, next to be served, at
-- most 7,000 in a call.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, first
-- RETURNS
--   left     how many jobs are still in the list `paused`; call again with `first` 0
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue
local paused, wait = queue .. 'paused', queue .. 'wait'
redis.call('HDEL', queue .. 'meta', 'paused')
local left = 0
if redis.call('EXISTS', paused) == 1 then
  if redis.call('EXISTS', wait) == 0 then
    redis.call('RENAME', paused, wait)
  else
    local ids = redis.call('LRANGE', paused, 0, 6999)
    for at = 1, #ids, 1000 do
      redis.call('RPUSH', wait, unpack(ids, at, math.min(at + 999, #ids)))
    end
    redis.call('LTRIM', paused, #ids, -1)
    left = redis.call('LLEN', paused)
  end
end
if redis.call('LLEN', wait) + redis.call('ZCARD', queue .. 'prioritized') > 0 then
  redis.call('ZADD', queue .. 'marker', 0, '0')
else
  mark_delayed(queue)
end
if ARGV[3] == '1' then emit(queue, 'resumed') end
return left
