#!lua flags=allow-oom
-- dead_letter: move an exhausted entry to the dead-letter stream.
--
-- Copy and acknowledgement are one step, so that the entry is never lost.
-- An entry that was claimed meanwhile is left to its new holder.
--
-- KEYS
--   stream  stream  the stream
--   dead    stream  <stream>:dead
-- ARGV
--   group, id, holder, min_idle_ms, maxlen, reason, fields
-- RETURNS
--   dead_lettered   the entry is in the dead-letter stream now
--   gone            the entry was deleted; it is no longer pending
--   not_held        another consumer holds it, or it is not pending; nothing was written
-- CLAUSES T-7
local stream, dead = KEYS[1], KEYS[2]
local group, id, holder, min_idle_ms, maxlen, reason, fields = unpack(ARGV, 1, 7)

local pending = redis.call('XPENDING', stream, group, 'IDLE', min_idle_ms, id, id, 1)[1]
if not pending or pending[2] ~= holder then return 'not_held' end
if #redis.call('XRANGE', stream, id, id) == 0 then
  redis.call('XACK', stream, group, id)
  return 'gone'
end
redis.call('XADD', dead, 'MAXLEN', '~', maxlen, '*',
  'entry_id', id, 'reason', reason, 'deliveries', pending[4], 'fields', fields)
redis.call('XACK', stream, group, id)
return 'dead_lettered'
