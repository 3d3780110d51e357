-- J-41: a maintenance task runs once per period for the whole fleet, in the process that comes first.
-- A guard that lives longer than its period was set before the clock was set back: it is replaced.
local function already_done(task, period_ms, consumer)
  if period_ms == '0' then return false end
  local guard = guard_key(task)
  if redis.call('SET', guard, consumer, 'NX', 'PX', period_ms) then return false end
  if redis.call('PTTL', guard) <= tonumber(period_ms) then return true end
  redis.call('SET', guard, consumer, 'PX', period_ms)
  return false
end
