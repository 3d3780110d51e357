#!lua
-- writable: check whether the server accepts a write now.
--
-- Declared as a script that may write, so that the server refuses it exactly when it would
-- refuse a write: out of memory, a replica, too few replicas, a failed disk. With a key it also writes a
-- value of each type there and removes it, so that missing permissions and a Cluster that is down
-- are found.
--
-- KEYS
--   key   any   a key that nothing else uses, or none
-- RETURNS
--   yes   a write is accepted
local key = KEYS[1]
if key then
  redis.call('DEL', key)
  redis.call('SET', key, '1', 'PX', 1000)
  redis.call('DEL', key)
  redis.call('HSET', key, 'field', '1')
  redis.call('DEL', key)
  redis.call('ZADD', key, 1, 'member')
  redis.call('DEL', key)
  redis.call('XADD', key, '*', 'field', '1')
  redis.call('DEL', key)
end
return 'yes'
