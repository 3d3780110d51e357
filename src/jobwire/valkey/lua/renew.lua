#!lua flags=allow-oom
-- renew: reset the idle time of entries that this consumer still holds.
--
-- Checks the holder first: a plain XCLAIM would take back an entry that another
-- consumer has claimed. Counts no delivery.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, consumer, ...
-- RETURNS
--   lost   the ids of the rest of ARGV that this consumer does not hold
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
