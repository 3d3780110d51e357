#!lua flags=allow-oom
-- deregister: take this worker's name off the door.
--
-- Its consumer goes only if nothing is pending under it: deleting it would drop
-- those entries. Whatever is left there is reclaimed in its time.
--
-- Also touches, below the queue's prefix: jobs:worker:<consumer>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer
-- RETURNS
--   left   nothing of this worker remains
--   owes   something is still pending under its name
-- CLAUSES J-39 J-40
-- INCLUDE keys
local consumer = ARGV[1]

redis.call('DEL', worker_key(consumer))
local pending = redis.pcall('XPENDING', queue, 'workers', '-', '+', 1, consumer)
if pending.err then return 'left' end
if pending[1] then return 'owes' end
redis.call('XGROUP', 'DELCONSUMER', queue, 'workers', consumer)
return 'left'
