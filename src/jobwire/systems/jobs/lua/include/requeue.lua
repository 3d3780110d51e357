-- What maintenance does with a job whose worker is gone: end the job, or requeue it.

-- J-34: a job is not delivered without limit. Deliveries that ended in a failed attempt were
-- answered; each of the others may have killed its worker.
local function is_exhausted(deliveries, attempt, max_deliveries)
  return (tonumber(deliveries) or 0) - ((tonumber(attempt) or 1) - 1) >= max_deliveries
end

local function end_exhausted(id, expiry, attempt)
  local err = problem('delivery_limit', 'too many workers were lost over this job', attempt)
  finish(id, expiry, 'error', '', err, 'duty.sweep', err)
  extend_key_of(id, expiry)
  clear_owner(id)
end

-- Without an owner the former worker's token opens nothing, should that worker come back.
local function requeue(id, expiry, status, task, payload)
  enqueue(id, task, payload)
  update(id, expiry, 'status', 'queued')
  extend_key_of(id, expiry)
  clear_owner(id)
  if status == 'running' then emit_trimmed(id, expiry, 'queued', 'duty.sweep', '{}') end
end

-- J-34: how long a foreign worker, which does not renew, has shown no sign of life. Signs are
-- `updated_ts` of a running job and the job's last event, unless its gateway wrote that event.
-- Foreign programs may write any time; one that lies too far ahead is ignored.
local function inactive_ms(id, idle_ms, idle_limit_ms)
  local row = id and redis.pcall('HMGET', job_key(id), 'status', 'updated_ts')
  if not row or row.err then return idle_ms end
  local status, updated_ts = row[1], row[2]
  local signs = {status == 'running' and updated_ts or ''}
  local last = redis.pcall('XREVRANGE', events_key(id), '+', '-', 'COUNT', 1)
  if not last.err and last[1] and fields_of(last[1][2]).type ~= 'queued' then
    signs[2] = string.match(last[1][1], '^%d+')
  end
  for _, sign in ipairs(signs) do
    local sign_ms = tonumber(sign)
    if sign_ms and sign_ms <= now_ms + idle_limit_ms then
      idle_ms = math.min(idle_ms, now_ms - sign_ms)
    end
  end
  return idle_ms
end
