#!lua flags=allow-oom
-- list_steps: the recorded steps of a job without their results, which may be large. Writes nothing.
--
-- Also touches, below the queue's prefix: job:<id>:steps
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   job_id
-- RETURNS
--   steps   a flat list, for each step: name, when it ended, milliseconds, bytes of its result; the
--           numbers are empty for a step that was started and has no result
-- CLAUSES D-17
-- INCLUDE keys
local flat = redis.pcall('HGETALL', steps_key(ARGV[1]))
local steps = {}
for at = 1, flat.err and 0 or #flat, 2 do
  local kind, name, value = string.sub(flat[at], 1, 2), string.sub(flat[at], 3), flat[at + 1]
  local ended, ms = string.match(value, '^%[(%d+),(%d+),')
  if kind == 'o:' or kind == 's:' and ended then
    steps[#steps + 1] = name
    steps[#steps + 1] = ended or ''
    steps[#steps + 1] = ms or ''
    steps[#steps + 1] = ended and tostring(#value - #ended - #ms - 4) or ''
  end
end
return steps
