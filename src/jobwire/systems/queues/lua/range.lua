-- range: a page of the jobs in a state, each with its hash.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, state, first, count, ascending
--   max_bytes   the page ends before the job that exceeds it; it has one job at least
-- RETURNS
--   jobs     an array of id and fields; a job whose hash is gone has none
-- CLAUSES B-8 B-10
-- INCLUDE queue states
local state, first, count, ascending = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local max_bytes = tonumber(ARGV[7])
local jobs, size = {}, 0
for at, id in ipairs(ids_of(state, first, count, ascending)) do
  for _, field in ipairs({ 'data', 'returnvalue', 'stacktrace', 'failedReason', 'progress' }) do
    size = size + redis.call('HSTRLEN', queue .. id, field)
  end
  if at > 1 and size > max_bytes then break end
  jobs[at] = { id, redis.call('HGETALL', queue .. id) }
end
return jobs
