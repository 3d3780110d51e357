-- state: where a job is.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id
-- RETURNS
--   state    one of the wire's states; `unknown` where the job is in none
-- CLAUSES B-8 B-10
-- INCLUDE queue
local id = ARGV[3]
for _, state in ipairs({ 'completed', 'failed', 'delayed', 'prioritized' }) do
  if redis.call('ZSCORE', queue .. state, id) then return state end
end
if redis.call('LPOS', queue .. 'active', id) then return 'active' end
for _, list in ipairs({ 'wait', 'paused' }) do
  if redis.call('LPOS', queue .. list, id) then return 'waiting' end
end
if redis.call('ZSCORE', queue .. 'waiting-children', id) then return 'waiting-children' end
return 'unknown'
