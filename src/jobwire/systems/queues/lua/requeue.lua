-- requeue: move jobs of a state to the end of the line, the oldest first.
--
-- For all failed or completed jobs, and for all delayed ones. As with the official packages their
-- priority does not count any more.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, state, count, last_score
-- RETURNS
--   moved    how many jobs wait again; as many as `count` means that there may be more
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue reprocess
local state, count = ARGV[3], tonumber(ARGV[4])
local ids = redis.call('ZRANGEBYSCORE', queue .. state, 0, ARGV[5], 'LIMIT', 0, count)
if #ids == 0 then return 0 end
for _, id in ipairs(ids) do
  if state ~= 'delayed' then forget_outcome(queue, id, state) end
end
for _, id in ipairs(ids) do emit_waiting(queue, true, id, state) end
for at = 1, #ids, 1000 do
  local last = math.min(at + 999, #ids)
  redis.call('ZREM', queue .. state, unpack(ids, at, last))
  redis.call('LPUSH', queue_state(queue).waiting, unpack(ids, at, last))
end
mark_work(queue)
return #ids
