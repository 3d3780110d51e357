-- J-41: a maintenance task runs once a period for the whole fleet, in whichever process comes first.
-- A guard that would live longer than its period was set before the clock was set back: it is void.
local function someone_did(duty, period_ms, me)
  if period_ms == '0' then return false end
  local guard = guard_key(duty)
  if redis.call('SET', guard, me, 'NX', 'PX', period_ms) then return false end
  if redis.call('PTTL', guard) <= tonumber(period_ms) then return true end
  redis.call('SET', guard, me, 'PX', period_ms)
  return false
end
