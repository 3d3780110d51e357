-- J-41: a maintenance task runs once per period for the whole fleet, in the process that comes first.
-- A guard that lives longer than its period was set before the clock was set back: it is replaced.
-- Returns for how many ms the guard still holds; nil: the task is this process's.
local function already_done(task, period_ms, consumer)
  if period_ms == '0' then return nil end
  local guard = guard_key(task)
  if redis.call('SET', guard, consumer, 'NX', 'PX', period_ms) then return nil end
  local left_ms = redis.call('PTTL', guard)
  if left_ms <= tonumber(period_ms) then return left_ms end
  redis.call('SET', guard, consumer, 'PX', period_ms)
  return nil
end
