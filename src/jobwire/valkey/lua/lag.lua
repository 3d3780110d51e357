#!lua flags=no-writes
-- lag: count the entries that were not delivered to a group yet.
--
-- Counted, because the server's own figure is wrong after entries were deleted.
--
-- KEYS
--   stream  stream  the stream
-- ARGV
--   group, limit
-- RETURNS
--   count   at most `limit`; -1 if there is no such group
-- CLAUSES T-9
local stream, group, limit = KEYS[1], ARGV[1], ARGV[2]

if redis.call('EXISTS', stream) == 0 then return -1 end
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local info = {}
  for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
  if info.name == group then
    local last = info['last-delivered-id']
    return #redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', limit)
  end
end
return -1
