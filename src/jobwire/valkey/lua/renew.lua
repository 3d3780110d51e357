#!lua flags=allow-oom
-- renew: renew the idle time of entries that this consumer still holds.
--
-- Looks at the holder first: a bare XCLAIM would steal an entry back that was
-- taken over while its consumer was out of reach. Counts no delivery.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, consumer, ...
-- RETURNS
--   lost   those of the ids in the rest of ARGV that others hold, or nobody
-- CLAUSES T-6
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]

local lost = {}
for at = 3, #ARGV do
  local id = ARGV[at]
  local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if pending and pending[2] == consumer then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
  else
    lost[#lost + 1] = id
  end
end
return lost
