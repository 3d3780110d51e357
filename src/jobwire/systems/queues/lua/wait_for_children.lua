#!lua flags=allow-oom
-- wait_for_children: let an active job wait until its children have ended.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, token, child_key
-- RETURNS
--   ok               the job waits for its children
--   no_children      nothing to wait for; the job stays active
--   missing          there is no such job
--   failed_children  a child failed; the job can only fail
--   no_lock          the lock has expired; nothing was written
--   foreign_lock     another worker has the lock; nothing was written
--   not_active       the job is not active
-- CLAUSES B-8 B-10
-- INCLUDE queue events lock memory
local id, child = ARGV[3], ARGV[5]
if redis.call('EXISTS', queue .. id) == 0 then return { 'missing' } end
if redis.call('ZCARD', queue .. id .. ':unsuccessful') > 0 then return { 'failed_children' } end
local dependencies = queue .. id .. ':dependencies'
local pending = child == '' and redis.call('SCARD', dependencies)
  or child ~= '' and redis.call('SISMEMBER', dependencies, child)
if pending == 0 then return refused_verb(queue, id, ARGV[4], 'children', 'no_children') end
local left = leave_active(queue, id, ARGV[4], nil, function()
  redis.call('ZADD', queue .. 'waiting-children', text(now), id)
end)
if left ~= 'ok' then return refused_verb(queue, id, ARGV[4], 'children', left) end
remember_verb(queue, id, ARGV[4], 'children')
emit(queue, 'waiting-children', 'jobId', id, 'prev', 'active')
return { 'ok' }
