#!lua flags=allow-oom
-- dead_letter: move an entry that nobody could handle to the dead-letter stream.
--
-- Copy and acknowledgement are one step: the entry is never in neither place.
-- One that was taken over meanwhile is left to its new holder.
--
-- KEYS
--   stream  stream  the stream
--   dead    stream  <stream>:dead
-- ARGV
--   group, id, holder, min_idle_ms, maxlen, reason, fields
-- RETURNS
--   buried   it is in the dead-letter stream now
--   gone     it had been deleted; only the pending mark was removed
--   moved    somebody else holds it, or nobody any more; nothing was written
-- CLAUSES T-7
local stream, dead = KEYS[1], KEYS[2]
local group, id, holder, min_idle_ms, maxlen, reason, fields = unpack(ARGV, 1, 7)

local pending = redis.call('XPENDING', stream, group, 'IDLE', min_idle_ms, id, id, 1)[1]
if not pending or pending[2] ~= holder then return 'moved' end
if #redis.call('XRANGE', stream, id, id) == 0 then
  redis.call('XACK', stream, group, id)
  return 'gone'
end
redis.call('XADD', dead, 'MAXLEN', '~', maxlen, '*',
  'entry_id', id, 'reason', reason, 'deliveries', pending[4], 'fields', fields)
redis.call('XACK', stream, group, id)
return 'buried'
