-- log: append a line to a job's log, and drop the oldest ones beyond the job's limit.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, line, keep
-- RETURNS
--   length   how many lines there are; -1 where there is no such job
-- CLAUSES B-7 B-8 B-10
-- INCLUDE queue events progress
local key, keep = queue .. ARGV[3], tonumber(ARGV[5])
if redis.call('EXISTS', key) == 0 then return -1 end
return append_log(queue, ARGV[3], ARGV[4], keep)
