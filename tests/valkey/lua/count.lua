#!lua flags=allow-oom
-- count: raise a counter that lives for a minute.
--
-- Two commands in one step: a counter never stays behind without its time to live.
--
-- KEYS
--   counter  string  any name
-- ARGV
--   step, note
-- RETURNS
--   number   the counter after this step
--   refused  the step is not a number
-- CLAUSES T-3
-- INCLUDE number
local counter = KEYS[1]
local step, note = ARGV[1], ARGV[2]
if not is_number(step) then
  return 'refused'
end
local number = redis.call('INCRBY', counter, step)
redis.call('EXPIRE', counter, 60)
return number
