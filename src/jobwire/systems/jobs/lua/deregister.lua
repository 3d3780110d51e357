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
--   ...   its queues
-- RETURNS
--   removed   nothing of this worker remains
--   pending   entries are still pending under its name
-- CLAUSES J-39 J-40
-- INCLUDE keys
local consumer = ARGV[1]

redis.call('DEL', worker_key(consumer))
local answer = 'removed'
local function leave()
  local pending = redis.pcall('XPENDING', queue, 'workers', '-', '+', 1, consumer)
  if pending.err then return end
  if pending[1] then
    answer = 'pending'
  else
    redis.call('XGROUP', 'DELCONSUMER', queue, 'workers', consumer)
  end
end

-- Every worker has a consumer in the default queue: registrations are found by it.
leave()
for at = 2, #ARGV do
  select_queue(ARGV[at])
  leave()
end
return answer
