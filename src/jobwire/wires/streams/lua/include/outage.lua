-- J-34, G-27: idle times run on while the server does not serve, and jump with its clock. Each call
-- of reclaim, by any process, notes the server's time; a gap between two calls is an outage, also
-- one that broke no connection. For half a lease after it nothing is reclaimed, so that living
-- workers, which renew every third of it, come first.
local outage_key = guard_key('outage')
local outage_ended_ms = 0

-- Whether nothing may be reclaimed yet. Where every call is late, as on a machine that is always
-- overloaded, it gives way after ten in a row: a dead worker's jobs must not wait for ever.
local function recovering(lease_ms, reconnected)
  local row = redis.pcall('HMGET', outage_key, 'seen_ts', 'hold_ts', 'in_a_row', 'ended_ts')
  if row.err then
    redis.call('DEL', outage_key)
    row = {}
  end
  local hold_ms, in_a_row = tonumber(row[2]) or 0, tonumber(row[3]) or 0
  outage_ended_ms = tonumber(row[4]) or 0
  local gap_ms = now_ms - (tonumber(row[1]) or now_ms)
  if gap_ms < -lease_ms / 2 then hold_ms, outage_ended_ms = 0, now_ms end
  if math.abs(gap_ms) > lease_ms / 2 then
    in_a_row = in_a_row + 1
    if in_a_row <= 10 then hold_ms, outage_ended_ms = now_ms + lease_ms / 2, now_ms end
  elseif now_ms >= hold_ms then
    in_a_row = 0
  end
  redis.call('HSET', outage_key, 'seen_ts', now, 'hold_ts', string.format('%.0f', hold_ms),
    'in_a_row', in_a_row, 'ended_ts', string.format('%.0f', outage_ended_ms))
  redis.call('EXPIRE', outage_key, 86400)
  return reconnected or now_ms < hold_ms
end
