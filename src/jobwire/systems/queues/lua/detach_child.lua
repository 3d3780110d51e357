-- detach_child: let a job's parent not wait for it any more; the job itself goes on.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, parent_key
-- RETURNS
--   ok          the job has no parent any more
--   no_relation the parent does not wait for the job; nothing was changed
--   missing     there is no such job
--   no_parent   there is no such parent
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue parents remove purge tree
local key, parent_key = queue .. ARGV[3], ARGV[4]
if redis.call('EXISTS', key) == 0 then return 'missing' end
if redis.call('EXISTS', parent_key) == 0 then return 'no_parent' end
if not leave_parent(key, parent_key) then return 'no_relation' end
redis.call('HDEL', key, 'parentKey', 'parent')
return 'ok'
