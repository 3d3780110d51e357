#!lua flags=allow-oom
-- deregister: remove this worker's registration.
--
-- Its consumer is deleted only if nothing is pending under it: deleting it would drop
-- those entries. Entries that stay are reclaimed when their leases expire.
--
-- Also touches, below the queue's prefix: jobs:worker:<consumer>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer
-- RETURNS
--   removed   nothing of this worker remains
--   pending   entries are still pending under its name
-- CLAUSES J-39 J-40
-- INCLUDE keys
local consumer = ARGV[1]

redis.call('DEL', worker_key(consumer))
local pending = redis.pcall('XPENDING', queue, 'workers', '-', '+', 1, consumer)
if pending.err then return 'removed' end
if pending[1] then return 'pending' end
redis.call('XGROUP', 'DELCONSUMER', queue, 'workers', consumer)
return 'removed'
