-- What duties do with a job whose worker is gone: end it, or put it back in line.

-- J-34: a job is not given to workers for ever. Starts that ended in a failed attempt were
-- answered; the others were not, and each may have killed its worker.
local function used_up(deliveries, attempt, max_deliveries)
  return (tonumber(deliveries) or 0) - ((tonumber(attempt) or 1) - 1) >= max_deliveries
end

local function end_used_up(id, expiry, attempt)
  local err = problem('delivery_limit', 'too many workers were lost over this job', attempt)
  finish(id, expiry, 'error', '', err, 'duty.sweep', err)
  extend_key_of(id, expiry)
  disown(id)
end

-- A worker that comes back from the dead must find the door shut.
local function back_in_line(id, expiry, status, task, payload)
  enqueue(id, task, payload)
  update(id, expiry, 'status', 'queued')
  extend_key_of(id, expiry)
  disown(id)
  if status == 'running' then emit_again(id, expiry, 'queued', 'duty.sweep', '{}') end
end

-- J-34: for how long nothing was heard of a worker that is not asked to renew: `updated_ts` of a
-- running job and its last event count, what its gateway wrote does not. Others may write any time
-- there; one that lies too far ahead counts for nothing.
local function silent_ms(id, idle_ms, patience_ms)
  local row = id and redis.pcall('HMGET', job_key(id), 'status', 'updated_ts')
  if not row or row.err then return idle_ms end
  local signs = {row[1] == 'running' and row[2] or ''}
  local last = redis.pcall('XREVRANGE', events_key(id), '+', '-', 'COUNT', 1)
  if not last.err and last[1] and fields_of(last[1][2]).type ~= 'queued' then
    signs[2] = string.match(last[1][1], '^%d+')
  end
  for _, sign in ipairs(signs) do
    local sign_ms = tonumber(sign)
    if sign_ms and sign_ms <= now_ms + patience_ms then
      idle_ms = math.min(idle_ms, now_ms - sign_ms)
    end
  end
  return idle_ms
end
