-- progress: store a job's progress and publish an event.
--
-- The message is a line of the job's log, of which the newest `keep` stay; 0 keeps all.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, value, message, keep
-- RETURNS
--   ok       the hash has the value
--   missing  there is no such job; nothing was written
-- CLAUSES B-7 B-10 B-16
-- INCLUDE queue events progress
local id, value, message, keep = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
if redis.call('EXISTS', queue .. id) == 0 then return 'missing' end
write_progress(queue, id, value, message, keep)
return 'ok'
