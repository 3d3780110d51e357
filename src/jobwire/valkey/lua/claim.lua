#!lua flags=allow-oom
-- claim: take pending entries over, if they are still with the holder that was seen.
--
-- Between looking and taking another consumer may have been quicker; what it
-- holds now is left alone. An entry that was deleted drops off the pending list.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, consumer, min_idle_ms, ...
-- RETURNS
--   entries   what was taken, as id and fields; the rest of ARGV are ids and holders
-- CLAUSES T-6 T-7
local stream, group, consumer, min_idle_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local entries = {}
for at = 4, #ARGV, 2 do
  local id, holder = ARGV[at], ARGV[at + 1]
  local pending = redis.call('XPENDING', stream, group, 'IDLE', min_idle_ms, id, id, 1)[1]
  if pending and pending[2] == holder then
    local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
    if entry then entries[#entries + 1] = entry end
  end
end
return entries
