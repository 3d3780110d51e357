#!lua flags=allow-oom
-- resume: let workers start the jobs of a paused queue again.
--
-- Also touches, below the queue's prefix: jobs:paused, jobs:queues, channel jobs:control
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   name, message, publish
-- RETURNS
--   resumed   the queue is not paused any more
--   unknown   there is no such queue
-- CLAUSES J-9 J-53
-- INCLUDE keys
local name, message, publish = ARGV[1], ARGV[2], ARGV[3]

if redis.call('SREM', paused_key, name) == 0 and name ~= 'default'
  and redis.call('SISMEMBER', queues_key, name) == 0 then
  return 'unknown'
end
redis.call(publish, control, message)
return 'resumed'
