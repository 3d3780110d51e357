-- failures: the newest failed jobs of a queue since a time. Writes nothing.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, since_ms, most
-- RETURNS
--   jobs     how many there are; an array of id, time, name, reason, worker, type of the exception
-- CLAUSES O-11 B-12
-- INCLUDE queue
local since, most = ARGV[3], tonumber(ARGV[4])
local LONGEST = 500
local LONGEST_STACK = 32768
-- Anybody may have written the stacks: all of a call are read up to this size, and of each a number of
-- places at most.
local stack_bytes_left = 1048576
local MOST_PLACES = 20

-- The word before the reason, where a line of the stack begins with both; the last one is that of the
-- newest attempt. The stack is JSON: only the part of the reason is looked for that JSON leaves as it is.
local function exception_type(key, reason)
  local plain = string.match(reason, '^[^%c"\\\128-\255]+')
  local size = redis.call('HSTRLEN', key, 'stacktrace')
  if not plain or size > math.min(LONGEST_STACK, stack_bytes_left) then return '' end
  stack_bytes_left = stack_bytes_left - size
  local stack, wanted = redis.call('HGET', key, 'stacktrace') or '', ': ' .. string.sub(plain, 1, 60)
  local found, at, places = '', string.find(stack, wanted, 1, true), 0
  while at and places < MOST_PLACES do
    places = places + 1
    local before = string.sub(stack, math.max(1, at - 80), at - 1)
    found = string.match(before, '"([%a_][%w_.]*)$') or string.match(before, '\\n([%a_][%w_.]*)$')
      or found
    at = string.find(stack, wanted, at + #wanted, true)
  end
  return found
end

local total = redis.call('ZCOUNT', queue .. 'failed', since, '+inf')
local jobs = {}
if total > 0 then
  local found = redis.call('ZREVRANGEBYSCORE', queue .. 'failed', '+inf', since, 'WITHSCORES',
    'LIMIT', 0, most)
  for at = 1, #found, 2 do
    local key = queue .. found[at]
    local row = redis.call('HMGET', key, 'name', 'failedReason', 'workerId', 'pb')
    local reason = string.sub(row[2] or '', 1, LONGEST)
    jobs[#jobs + 1] = { found[at], text(number(found[at + 1]) or 0), row[1] or '', reason,
      row[3] or row[4] or '', exception_type(key, reason) }
  end
end
return { total, jobs }
