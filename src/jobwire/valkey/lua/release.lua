#!lua flags=allow-oom
-- release: release entries that this consumer holds and has not started.
--
-- A group cannot take an entry back, so its idle time is set high: the next scan
-- of a reclaimer claims it. This delivery is not counted.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, consumer, idle_ms, ...
-- RETURNS
--   released   how many of the ids in the rest of ARGV
-- CLAUSES T-6
local stream, group, consumer, idle_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local released = 0
for at = 4, #ARGV do
  local id = ARGV[at]
  local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if pending and pending[2] == consumer then
    redis.call('XCLAIM', stream, group, consumer, 0, id,
      'IDLE', idle_ms, 'RETRYCOUNT', math.max(0, pending[4] - 1), 'JUSTID')
    released = released + 1
  end
end
return released
