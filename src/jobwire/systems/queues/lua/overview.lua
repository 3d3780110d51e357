-- overview: a queue now and its last hour, for an operator. Writes nothing.
--
-- Numbers of wait, paused, active, delayed, prioritized, waiting-children; the age of the next job
-- in ms, -1 without one; arrays of jobs completed and failed in each of the last 60 minutes, oldest
-- first, empty where none ended; minute and run time of the newest completed jobs; 1 if the queue is
-- paused. Ended jobs of a minute are the larger of two numbers: the jobs that are still stored, and
-- what the workers of the queue have counted (`metrics`), where one of them counts.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras
-- RETURNS
--   numbers   an array of the above
-- CLAUSES O-11 B-12
-- INCLUDE queue states waiting
local MINUTES, SAMPLES = 60, 20
local MINUTE_MS = 60000
local numbers = count_states(false)
local id = next_id()
numbers[7] = id and age_ms(id) or -1

local first = math.floor(now / MINUTE_MS) - MINUTES + 1

local function raise_to(ended, minute, counted)
  local at = minute - first + 1
  if at < 1 or at > MINUTES or not counted or counted <= ended[at] then return 0 end
  ended[at] = counted
  return counted
end

local function by_minute(state)
  local ended, any = {}, 0
  for at = 1, MINUTES do ended[at] = 0 end
  if redis.call('ZCOUNT', queue .. state, text(first * MINUTE_MS), '+inf') > 0 then
    for minute = first, first + MINUTES - 1 do
      local from, to = text(minute * MINUTE_MS), '(' .. text((minute + 1) * MINUTE_MS)
      any = any + raise_to(ended, minute, redis.call('ZCOUNT', queue .. state, from, to))
    end
  end
  local key = queue .. 'metrics:' .. state
  local row = redis.call('HMGET', key, 'count', 'prevTS', 'prevCount')
  local total, last_ms = number(row[1]), number(row[2])
  if total and last_ms and last_ms >= first * MINUTE_MS then
    local last = math.floor(last_ms / MINUTE_MS)
    any = any + raise_to(ended, last, total - (number(row[3]) or 0))
    for at, counted in ipairs(redis.call('LRANGE', key .. ':data', 0, MINUTES - 1)) do
      any = any + raise_to(ended, last - at, number(counted))
    end
  end
  return any > 0 and ended or {}
end

numbers[8], numbers[9] = by_minute('completed'), by_minute('failed')
local spans = {}
if #numbers[8] > 0 then
  for _, each in ipairs(redis.call('ZREVRANGE', queue .. 'completed', 0, SAMPLES - 1)) do
    local row = redis.call('HMGET', queue .. each, 'processedOn', 'finishedOn')
    local began, ended = number(row[1]), number(row[2])
    local at = ended and math.floor(ended / MINUTE_MS) - first + 1
    if began and at and at >= 1 and at <= MINUTES then
      spans[#spans + 1] = at - 1
      spans[#spans + 1] = math.max(0, math.floor(ended - began))
    end
  end
end
numbers[10] = spans
numbers[11] = redis.call('HEXISTS', queue .. 'meta', 'paused')
return numbers
