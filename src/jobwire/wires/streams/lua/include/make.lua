-- What submit and cron share: a job appears whole, with its first event and its place in line.
-- Its extra fields (name, value) are the arguments from `extras` on.
local function make(job_id, task, payload, ttl_s, delay_ms, idempotency, tenant, extras)
  local job, events = job_key(job_id), events_key(job_id)
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local now = string.format('%.0f', now_ms)

  redis.call('HSET', job, 'job_id', job_id, 'task', task, 'payload', payload, 'status', 'queued',
    'created_ts', now, 'updated_ts', now, 'ttl_s', ttl_s, 'result', '', 'error', '',
    unpack(ARGV, extras))
  redis.call('EXPIRE', job, ttl_s)
  redis.call('XADD', events, '*',
    'type', 'queued', 'ts', now, 'step', 'gateway.enqueue', 'data', '{}')
  redis.call('EXPIRE', events, ttl_s)
  if delay_ms == '0' then
    local entry = redis.call('XADD', queue, '*', 'job_id', job_id, 'task', task, 'payload', payload)
    redis.call('HSET', job, 'entry_id', entry)
  else
    redis.call('ZADD', delayed_key, now_ms + delay_ms, job_id)
  end

  if idempotency ~= '' then redis.call('SET', idempotency_key(idempotency), job_id, 'EX', ttl_s) end
  redis.call('ZADD', open_key, now_ms + ttl_s * 1000, job_id)
  redis.call('ZADD', index_key(tenant), now, job_id)
  if tenant ~= '' then redis.call('ZADD', tenants_key, now, tenant) end
  local minute = stats_key(math.floor(now_ms / 60000))
  if redis.call('HINCRBY', minute, 'submissions', 1) == 1 then
    redis.call('EXPIRE', minute, 7200)
  end
  return {'submitted', job_id, now_ms}
end
