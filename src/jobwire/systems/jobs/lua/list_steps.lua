#!lua flags=allow-oom
-- list_steps: the recorded steps of a job and its children, without their results, which may be large.
-- Writes nothing.
--
-- The ends of children are not recorded with a parent that has ended before them: then the children
-- themselves are asked.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:steps
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   job_id
-- RETURNS
--   steps   a flat list, for each step: name, when it ended, milliseconds, bytes of its result; the
--           numbers are empty for a step that was started and has no result
--   children  a flat list of the first 100, for each: name, id and task as a JSON array, status: empty
--             until it has ended
--   counts    how many children there are, and how many ended as done, error and canceled
-- CLAUSES D-17
-- INCLUDE keys job
local flat = redis.pcall('HGETALL', steps_key(ARGV[1]))
local steps, names, children, ends = {}, {}, {}, {}
local counts = {total = 0, done = 0, error = 0, canceled = 0}
for at = 1, flat.err and 0 or #flat, 2 do
  local kind, name, value = string.sub(flat[at], 1, 2), string.sub(flat[at], 3), flat[at + 1]
  local ended, ms = string.match(value, '^%[(%d+),(%d+),')
  if kind == 'k:' then
    names[#names + 1], children[name] = name, value
    counts.total = counts.total + 1
  elseif kind == 'c:' then
    local status = string.match(value, '^%[%d+,"(%a+)"') or ''
    ends[name] = status
    if counts[status] then counts[status] = counts[status] + 1 end
  elseif kind == 'o:' or kind == 's:' and ended then
    steps[#steps + 1] = name
    steps[#steps + 1] = ended or ''
    steps[#steps + 1] = ms or ''
    steps[#steps + 1] = ended and tostring(#value - #ended - #ms - 4) or ''
  end
end

if terminal[redis.pcall('HGET', job_key(ARGV[1]), 'status')] then
  for _, name in ipairs(names) do
    local status = not ends[name] and redis.pcall('HGET', job_key(cjson.decode(children[name])[1]), 'status')
    if terminal[status] then
      ends[name], counts[status] = status, counts[status] + 1
    end
  end
end

-- Children without a key have a number.
local function number_of(name) return tonumber(string.match(name, '^:(%d+)@')) or 0 end
table.sort(names, function(one, other)
  local first, second = number_of(one), number_of(other)
  if first == second then return one < other end
  return first < second
end)
local first = {}
for at = 1, math.min(100, #names) do
  first[#first + 1] = names[at]
  first[#first + 1] = children[names[at]]
  first[#first + 1] = ends[names[at]] or ''
end
return {steps, first, {counts.total, counts.done, counts.error, counts.canceled}}
