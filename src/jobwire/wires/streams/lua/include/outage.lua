-- J-34, G-27: idle times run on while the server does not serve, and jump with its clock. Each call
-- of reclaim, by any process, notes the server's time; a gap between two calls is an outage, also
-- one that broke no connection. For half a lease after it nothing is reclaimed, so that living
-- workers, which renew every third of it, come first.
local outage_key = guard_key('outage')
local outage_ended_ms = 0

-- Deliveries lie in the future after the clock was set back: idle for 0 ms until it has caught up.
-- Their leases start anew, a page a call; nil after the last page.
local function restart_leases(cursor)
  local page, entries_of = 1000, {}
  local list = redis.pcall('XPENDING', queue, 'workers', cursor, '+', page)
  for _, row in ipairs(list.err and {} or list) do
    local entries = entries_of[row[2]] or {}
    entries_of[row[2]] = entries
    entries[#entries + 1] = row[1]
    cursor = '(' .. row[1]
  end
  for holder, entries in pairs(entries_of) do
    entries[#entries + 1] = 'JUSTID'
    redis.call('XCLAIM', queue, 'workers', holder, 0, unpack(entries))
  end
  if #list == page then return cursor end
end

-- Whether nothing may be reclaimed yet. Where every call is late, as on a machine that is always
-- overloaded, it gives way after ten in a row: a dead worker's jobs must not wait for ever.
local function recovering(lease_ms, reconnected)
  local row = redis.pcall('HMGET', outage_key, 'seen_ts', 'hold_ts', 'in_a_row', 'ended_ts', 'cursor')
  if row.err then
    redis.call('DEL', outage_key)
    row = {}
  end
  local hold_ms, in_a_row, cursor = tonumber(row[2]) or 0, tonumber(row[3]) or 0, row[5]
  outage_ended_ms = tonumber(row[4]) or 0
  local gap_ms = now_ms - (tonumber(row[1]) or now_ms)
  if gap_ms < -lease_ms / 2 then hold_ms, outage_ended_ms, cursor = 0, now_ms, '-' end
  if math.abs(gap_ms) > lease_ms / 2 then
    in_a_row = in_a_row + 1
    if in_a_row <= 10 then hold_ms, outage_ended_ms = now_ms + lease_ms / 2, now_ms end
  elseif now_ms >= hold_ms then
    in_a_row = 0
  end
  if cursor and cursor ~= '' then cursor = restart_leases(cursor) end
  redis.call('HSET', outage_key, 'seen_ts', now, 'hold_ts', string.format('%.0f', hold_ms),
    'in_a_row', in_a_row, 'ended_ts', string.format('%.0f', outage_ended_ms), 'cursor', cursor or '')
  redis.call('EXPIRE', outage_key, 86400)
  return reconnected or now_ms < hold_ms or (cursor or '') ~= ''
end
