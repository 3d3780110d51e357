#!lua flags=allow-oom
-- remove: delete a job in whatever state, with its children if asked.
--
-- A job that a worker has is left alone, and so is everything if a child that the job waits for is
-- being run.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, children
-- RETURNS
--   removed    the job is gone
--   missing    there was no such job
--   locked     a worker runs the job or one of its children; nothing was removed
--   scheduled  the job is the next iteration of a scheduler; remove the scheduler instead
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue parents remove purge tree
local id, children = ARGV[3], ARGV[4] == '1'
if is_current_iteration(queue, id) then return 'scheduled' end
if is_locked(queue, id, children, {}) then return 'locked' end
local existed = redis.call('EXISTS', queue .. id) == 1
remove_tree(queue, id, nil, { children = children }, {})
return existed and 'removed' or 'missing'
