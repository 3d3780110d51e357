#!lua flags=allow-oom
-- heartbeat: renew this worker's registration.
--
-- The registration and its lifetime are written together, so a dead worker's registration
-- expires. It is written whole each time, also for a server that was emptied. Readers
-- find registrations by the group's consumers, so the consumer is created here.
--
-- Also touches, below the queue's prefix: jobs:worker:<consumer>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, lifetime_ms
--   ...   the registration: field, value
-- RETURNS
--   registered   the registration is written
-- CLAUSES J-1 J-37
-- INCLUDE keys
local consumer, lifetime_ms = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

redis.pcall('XGROUP', 'CREATECONSUMER', queue, 'workers', consumer)
redis.call('HSETNX', worker_key(consumer), 'started_ts', now)
redis.call('HSET', worker_key(consumer), 'seen_ts', now, unpack(ARGV, 3))
redis.call('PEXPIRE', worker_key(consumer), lifetime_ms)
return 'registered'
