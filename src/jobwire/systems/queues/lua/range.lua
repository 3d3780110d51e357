-- range: a page of the jobs in a state, each with its hash.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, state, first, count, ascending
-- RETURNS
--   jobs     an array of id and fields; a job whose hash is gone has none
-- CLAUSES B-8 B-10
-- INCLUDE queue states
local state, first, count, ascending = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local jobs = {}
for at, id in ipairs(ids_of(state, first, count, ascending)) do jobs[at] = { id, redis.call('HGETALL', queue .. id) } end
return jobs
