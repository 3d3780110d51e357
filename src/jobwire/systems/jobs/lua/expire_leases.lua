#!lua flags=allow-oom
-- expire_leases: let the leases of a worker whose process is dead expire now.
--
-- Its supervisor has seen its end. The entries stay pending under its name, as idle as after
-- a whole lease: the next reclaim takes them, and counts the delivery. The registration is
-- removed, so that the worker is not shown as live.
--
-- Also touches, below the queue's prefix: jobs:worker:<consumer>, jobs:queues, and the other
-- queues
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   names   the beginning of its consumer's name
--   lease_ms, limit
-- RETURNS
--   expired   how many leases
-- CLAUSES J-9 J-34
-- INCLUDE keys queues
local names, lease_ms, limit = ARGV[1], ARGV[2], ARGV[3]
local expired = 0

local function expire(consumer)
  redis.call('DEL', worker_key(consumer))
  local pending = redis.call('XPENDING', queue, 'workers', '-', '+', limit, consumer)
  for _, row in ipairs(pending) do
    redis.call('XCLAIM', queue, 'workers', consumer, 0, row[1], 'IDLE', lease_ms, 'JUSTID')
    expired = expired + 1
  end
end

for _, name in ipairs(known_queues()) do
  select_queue(name)
  local consumers = redis.pcall('XINFO', 'CONSUMERS', queue, 'workers')
  for _, fields in ipairs(consumers.err and {} or consumers) do
    if string.sub(fields[2], 1, #names) == names then expire(fields[2]) end
  end
end
return expired
