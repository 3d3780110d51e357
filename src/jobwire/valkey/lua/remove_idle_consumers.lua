#!lua flags=allow-oom
-- remove_idle_consumers: remove consumers that have been silent for long and own nothing.
--
-- Looking and removing are one step, because removing a consumer would drop
-- whatever became pending under its name in between. A bounded number a call.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, silent_ms, limit
-- RETURNS
--   names   of the consumers that were removed
-- CLAUSES T-7
local stream, group, silent_ms, limit = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local names = {}
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local consumer = {}
  for at = 1, #flat, 2 do consumer[flat[at]] = flat[at + 1] end
  if #names < limit and consumer.pending == 0 and consumer.idle >= silent_ms then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
    names[#names + 1] = consumer.name
  end
end
return names
