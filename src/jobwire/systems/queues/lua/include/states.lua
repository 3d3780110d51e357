-- The lists and sorted sets of a queue, by the state of their jobs.
local LISTS = { 'wait', 'paused', 'active' }
local OPEN_SETS = { 'delayed', 'prioritized', 'waiting-children' }
local FINISHED_SETS = { 'completed', 'failed' }

-- How many jobs wait, are in `paused`, active, delayed, prioritized, waiting for children; with
-- `finished` also completed and failed.
local function count_states(finished)
  local numbers = {}
  local function add(command, names)
    for _, name in ipairs(names) do numbers[#numbers + 1] = redis.call(command, queue .. name) end
  end
  add('LLEN', LISTS)
  add('ZCARD', OPEN_SETS)
  if finished then add('ZCARD', FINISHED_SETS) end
  return numbers
end

-- A page of a list. Its oldest job is at the right end.
local function page_of(key, first, count, ascending)
  local last = first + count - 1
  if not ascending then return redis.call('LRANGE', key, first, last) end
  local ids, found = {}, redis.call('LRANGE', key, -(last + 1), -(first + 1))
  for at = #found, 1, -1 do ids[#ids + 1] = found[at] end
  return ids
end

-- A page of ids. Waiting jobs may be in two lists, of which those in `paused` are served first.
local function ids_of(state, first, count, ascending)
  if state ~= 'wait' and state ~= 'active' then
    return redis.call(ascending and 'ZRANGE' or 'ZREVRANGE', queue .. state, first, first + count - 1)
  end
  local key = queue .. state
  local aside = state == 'wait' and redis.call('LLEN', queue .. 'paused') or 0
  if aside == 0 then return page_of(key, first, count, ascending) end
  local one, other = queue .. 'paused', key
  if not ascending then one, other = other, one end
  local ids, before = page_of(one, first, count, ascending), redis.call('LLEN', one)
  if #ids == count then return ids end
  local rest = page_of(other, math.max(0, first - before), count - #ids, ascending)
  for _, id in ipairs(rest) do ids[#ids + 1] = id end
  return ids
end
