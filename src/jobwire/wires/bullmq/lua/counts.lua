-- counts: how many jobs are in each state.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras
-- RETURNS
--   numbers  of wait, paused, active, delayed, prioritized, waiting-children, completed, failed
-- CLAUSES B-8 B-10
-- INCLUDE queue
local numbers = {}
for _, name in ipairs({ 'wait', 'paused', 'active' }) do
  numbers[#numbers + 1] = redis.call('LLEN', queue .. name)
end
for _, name in ipairs({ 'delayed', 'prioritized', 'waiting-children', 'completed', 'failed' }) do
  numbers[#numbers + 1] = redis.call('ZCARD', queue .. name)
end
return numbers
