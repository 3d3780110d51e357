-- measure: figures of a queue for metrics and checks. Writes nothing.
--
-- Numbers of wait, paused, active, delayed, prioritized, waiting-children, completed, failed; then 1
-- if paused; the age of the next job in ms, -1 without one; active jobs without a lock among the
-- first 1000; jobs completed and failed since workers count them, -1 where none does.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras
-- RETURNS
--   numbers   an array of the above
-- CLAUSES B-8 O-13
-- INCLUDE queue states waiting
local MOST_ACTIVE = 1000
local numbers = count_states(true)
numbers[9] = redis.call('HEXISTS', meta, 'paused')

local id = next_id()
numbers[10] = id and age_ms(id) or -1
local unlocked = 0
for _, each in ipairs(redis.call('LRANGE', queue .. 'active', 0, MOST_ACTIVE - 1)) do
  if redis.call('EXISTS', queue .. each .. ':lock') == 0 then unlocked = unlocked + 1 end
end
numbers[11] = unlocked
for at, name in ipairs({ 'completed', 'failed' }) do
  numbers[11 + at] = number(redis.call('HGET', queue .. 'metrics:' .. name, 'count')) or -1
end
return numbers
