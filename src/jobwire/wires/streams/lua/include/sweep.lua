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
