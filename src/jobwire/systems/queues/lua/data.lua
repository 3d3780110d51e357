-- data: replace a job's payload.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, value
-- RETURNS
--   ok       the hash has the value
--   missing  there is no such job; nothing was written
-- CLAUSES B-8 B-10
-- INCLUDE queue
local key = queue .. ARGV[3]
if redis.call('EXISTS', key) == 0 then return 'missing' end
redis.call('HSET', key, 'data', ARGV[4])
return 'ok'
