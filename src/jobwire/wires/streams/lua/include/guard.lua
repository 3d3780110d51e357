-- J-41: a duty is done once a period for the whole fleet, by whoever comes first.
local function someone_did(duty, period_ms, me)
  if period_ms == '0' then return false end
  return not redis.call('SET', guard_key(duty), me, 'NX', 'PX', period_ms)
end
