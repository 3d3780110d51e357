-- range: a page of the jobs in a state, each with its hash.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, state, first, count, ascending
-- RETURNS
--   jobs     an array of id and fields; a job whose hash is gone has none
-- CLAUSES B-8 B-10
-- INCLUDE queue
local state, first, count, ascending = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local lists = { wait = true, paused = true, active = true }
local ids
if lists[state] then
  -- The oldest job of a list is at its right end.
  if ascending then
    local found = redis.call('LRANGE', queue .. state, -(first + count), -(first + 1))
    ids = {}
    for at = #found, 1, -1 do ids[#ids + 1] = found[at] end
  else
    ids = redis.call('LRANGE', queue .. state, first, first + count - 1)
  end
else
  local command = ascending and 'ZRANGE' or 'ZREVRANGE'
  ids = redis.call(command, queue .. state, first, first + count - 1)
end
local jobs = {}
for at, id in ipairs(ids) do jobs[at] = { id, redis.call('HGETALL', queue .. id) } end
return jobs
