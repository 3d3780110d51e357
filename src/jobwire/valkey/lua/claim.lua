#!lua flags=allow-oom
-- claim: claim pending entries that still have the holder that was seen.
--
-- Another consumer may have claimed an entry since it was listed; such an entry
-- is skipped. A deleted entry is removed from the pending list.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, consumer, min_idle_ms, ...
-- RETURNS
--   entries   the claimed ones, as id and fields; the rest of ARGV are ids and holders
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
