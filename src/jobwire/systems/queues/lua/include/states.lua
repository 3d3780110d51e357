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

-- A page of ids. The oldest job of a list is at its right end.
local function ids_of(state, first, count, ascending)
  local key, last = queue .. state, first + count - 1
  if state ~= 'wait' and state ~= 'active' then
    return redis.call(ascending and 'ZRANGE' or 'ZREVRANGE', key, first, last)
  end
  if not ascending then return redis.call('LRANGE', key, first, last) end
  local ids, found = {}, redis.call('LRANGE', key, -(last + 1), -(first + 1))
  for at = #found, 1, -1 do ids[#ids + 1] = found[at] end
  return ids
end
