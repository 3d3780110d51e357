#!lua flags=allow-oom
-- remove_idle_consumers: remove consumers that are idle for long and have no pending entries.
--
-- Check and removal are one step, because removing a consumer drops entries that
-- became pending under its name in between. At most `limit` per call.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, idle_ms, limit
-- RETURNS
--   names   of the removed consumers
-- CLAUSES T-7
local stream, group, idle_ms, limit = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local names = {}
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local consumer = {}
  for at = 1, #flat, 2 do consumer[flat[at]] = flat[at + 1] end
  if #names < limit and consumer.pending == 0 and consumer.idle >= idle_ms then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
    names[#names + 1] = consumer.name
  end
end
return names
