-- What cancel and purge share: the end of a job that waits.

-- J-57: submit, cancel, repeat must not fill the server: such a job is removed soon, unless it has been started:
-- then it may have a record, which a retry keeps, and children, which are canceled when they find it canceled
-- (D-16). The caller has read `started_ts`.
local function cancel_waiting(job, canceled_ttl_s, step)
  local expiry = expiry_of(job.ttl_s)
  local soon = string.format('%.0f', now_ms + canceled_ttl_s * 1000)
  if not job.started_ts and tonumber(soon) < tonumber(expiry) then expiry = soon end
  if job.idempotency_key then redis.call('PEXPIREAT', idempotency_key(job.idempotency_key), expiry) end
  bytes().move(job.id, expiry)
  finish_canceled(job.id, expiry, job.attempt, step)
  redis.call('PEXPIREAT', steps_key(job.id), expiry)
  redis.call('ZREM', delayed_key, job.id)
  awaits().forget(job.id)
end
