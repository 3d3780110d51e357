-- J-34, G-27: idle times run on during an outage of the server, and jump with its clock. Each reclaim
-- of any process notes the server's time; a gap between two calls is an outage, also one that broke
-- no connection. For half a lease after an outage nothing is reclaimed: live workers renew every
-- third of a lease, so they come first.
local outage_key = guard_key('outage')
local outage_ended_ms = 0

-- Whether nothing may be reclaimed yet. On a machine that is always overloaded every call is late:
-- after ten outages in a row reclaim goes on, so that a dead worker's jobs do not wait forever.
local function is_recovering(lease_ms, reconnected)
  local row = redis.pcall('HMGET', outage_key, 'seen_ts', 'hold_ts', 'in_a_row', 'ended_ts')
  if row.err then
    redis.call('DEL', outage_key)
    row = {}
  end
  local seen_ms, hold_ms = tonumber(row[1]) or now_ms, tonumber(row[2]) or 0
  local in_a_row = tonumber(row[3]) or 0
  outage_ended_ms = tonumber(row[4]) or 0
  local gap_ms = now_ms - seen_ms
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
