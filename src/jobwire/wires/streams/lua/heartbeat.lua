#!lua flags=allow-oom
-- heartbeat: let others know that this worker lives, and which tasks it has.
--
-- The card and its lifetime are written together, so a worker that dies leaves
-- nothing for ever. The whole card each time: an emptied server learns it again.
-- Others find cards by the group's consumers, so it is one before its first read.
--
-- Also touches, below the queue's prefix: jobs:worker:<consumer>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, lifetime_ms
--   ...   the card: field, value
-- RETURNS
--   seen   the card is there
-- CLAUSES J-1 J-37
-- INCLUDE keys
local consumer, lifetime_ms = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

redis.pcall('XGROUP', 'CREATECONSUMER', queue, 'workers', consumer)
redis.call('HSETNX', worker_key(consumer), 'started_ts', now)
redis.call('HSET', worker_key(consumer), 'seen_ts', now, unpack(ARGV, 3))
redis.call('PEXPIRE', worker_key(consumer), lifetime_ms)
return 'seen'
