-- recover: the active jobs whose lock is one of a worker's, for a worker that lost answers.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, token_prefix, lock_ms, idle_ms
--   ...   tokens that the worker knows
-- RETURNS
--   jobs     an array of token, id and fields
-- CLAUSES B-15
-- INCLUDE queue
local prefix, newest = ARGV[3], tonumber(ARGV[4]) - tonumber(ARGV[5])
local known, jobs = {}, {}
for at = 6, #ARGV do known[ARGV[at]] = true end
local ids = redis.call('LRANGE', queue .. 'active', 0, -1)
-- The newest job is first in the list.
for at = #ids, 1, -1 do
  local id = ids[at]
  local token = redis.call('GET', queue .. id .. ':lock')
  if token and string.sub(token, 1, #prefix) == prefix and not known[token]
    and redis.call('PTTL', queue .. id .. ':lock') <= newest then
    jobs[#jobs + 1] = { token, id, redis.call('HGETALL', queue .. id) }
  end
end
return jobs
