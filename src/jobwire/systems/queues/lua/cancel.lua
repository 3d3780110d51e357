#!lua flags=allow-oom
-- cancel: remove a job that waits; ask the worker of an active one to stop it.
--
-- An active job gets the deferred failure `canceled`: whatever becomes of this attempt, no program
-- runs the job again. A worker of ours also stops its handler.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, reason, channel, own_tokens, publish
-- RETURNS
--   canceled   the job waited and is removed
--   requested  a worker of ours runs the job and is asked to stop it
--   foreign    another program runs the job
--   finished   the job had ended before
--   scheduled  the job is the next iteration of a scheduler; remove the scheduler instead
--   gone       there is no such job
-- CLAUSES B-8 B-17
-- INCLUDE queue events enqueue parents remove purge slots
local id, reason, channel, own, publish = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local key = queue .. id
if redis.call('EXISTS', key) == 0 then return 'gone' end
for _, state in ipairs({ 'completed', 'failed' }) do
  if redis.call('ZSCORE', queue .. state, id) then return 'finished' end
end
if redis.call('LPOS', queue .. 'active', id) then
  redis.call('HSET', key, 'defa', reason)
  local token = redis.call('GET', key .. ':lock')
  if not token or string.sub(token, 1, #own) ~= own then return 'foreign' end
  redis.call(publish, channel, token)
  return 'requested'
end
if is_scheduled(queue, id) then return 'scheduled' end
local prev = 'unknown'
for _, state in ipairs({ 'delayed', 'prioritized', 'waiting-children' }) do
  if redis.call('ZREM', queue .. state, id) == 1 then prev = state end
end
for _, list in ipairs({ 'wait', 'paused' }) do
  if redis.call('LREM', queue .. list, 1, id) == 1 then prev = 'waiting' end
end
free_dedup(queue, id)
remove_job(queue, id)
emit_trimmed(queue, 'removed', 'jobId', id, 'prev', prev)
return 'canceled'
