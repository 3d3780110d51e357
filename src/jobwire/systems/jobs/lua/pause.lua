#!lua flags=allow-oom
-- pause: let no worker of ours start jobs of a queue.
--
-- Jobs that run go on, and new ones are accepted and wait. Workers are notified at once, and read the
-- paused queues again at each heartbeat.
--
-- Also touches, below the queue's prefix: jobs:paused, jobs:queues, channel jobs:control
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   name, message, publish
-- RETURNS
--   paused    the queue is paused, now or before
--   unknown   there is no such queue
-- CLAUSES J-9 J-53
-- INCLUDE keys
local name, message, publish = ARGV[1], ARGV[2], ARGV[3]

if name ~= 'default' and redis.call('SISMEMBER', queues_key, name) == 0 then return 'unknown' end
redis.call('SADD', paused_key, name)
redis.call(publish, control, message)
return 'paused'
