-- J-30, J-31: start the job of an entry that is pending under our consumer, or clear the entry
-- away where there is nothing to start. `started` and `dropped` are what the verb answers.
local started, dropped = {}, {}

local function drop(why, entry, id)
  clear(entry)
  dropped[#dropped + 1] = why
  dropped[#dropped + 1] = entry
  dropped[#dropped + 1] = id or ''
end

local job_fields = {
  'status', 'owner', 'attempt', 'deliveries', 'max_attempts', 'timeout_s', 'entry_id',
  'cancel_ts', 'ttl_s', 'created_ts', 'tenant', 'traceparent', 'unknown_ts', 'reports'
}

-- The job of an entry, if it may run: the entry counts, the job is neither ended nor gone.
local function runnable(entry, id)
  if not id then return drop('garbage', entry) end
  local row = redis.pcall('HMGET', job_key(id), unpack(job_fields))
  if row.err then return drop('broken', entry, id) end
  local job = {}
  for at, name in ipairs(job_fields) do job[name] = row[at] or nil end
  if not job.status then
    if redis.call('EXISTS', job_key(id)) == 0 then return drop('gone', entry, id) end
    job.status = 'queued'
  end
  if terminal[job.status] then return drop('ended', entry, id) end
  if job.entry_id and job.entry_id ~= '' and job.entry_id ~= entry then
    return drop('duplicate', entry, id)
  end
  job.ttl_s = ttl_of(job.ttl_s)
  if job.cancel_ts then
    finish_canceled(id, job.ttl_s, job.attempt, 'worker.start')
    return drop('canceled', entry, id)
  end
  return job
end

local function answer(entry, id, task, payload, job, token, attempt, deliveries)
  started[#started + 1] = {
    entry, id, task or '', payload or '', token, attempt, deliveries,
    tonumber(job.max_attempts) or 0, job.timeout_s or '', tonumber(job.created_ts) or 0,
    job.tenant or '', job.traceparent or ''
  }
end

-- A job that a stranger enqueued becomes one that we look after (J-39).
local function take_in(entry, id, ttl_s, created_ts, tenant)
  redis.pcall('ZADD', open_key, 'NX', now_ms + ttl_s * 1000, id)
  redis.pcall('ZADD', index_key(tenant), 'NX', tonumber(created_ts) or now_ms, id)
  if tenant and tenant ~= '' then redis.pcall('ZADD', tenants_key, now_ms, tenant) end
  redis.call('HSET', job_key(id), 'entry_id', entry)
end

local function start(entry, id, task, payload, job, token, consumer)
  local attempt = tonumber(job.attempt) or 1
  local deliveries = (tonumber(job.deliveries) or 0) + 1
  update(id, job.ttl_s, 'status', 'running', 'owner', token, 'worker', consumer,
    'deliveries', deliveries)
  if not job.entry_id or job.entry_id == '' then
    take_in(entry, id, job.ttl_s, job.created_ts, job.tenant)
  end
  -- Both belong to the time before this delivery.
  if job.unknown_ts or job.reports then
    redis.call('HDEL', job_key(id), 'unknown_ts', 'reports')
  end
  emit(id, job.ttl_s, 'running', 'worker.start', '{"attempt":' .. attempt .. '}')
  answer(entry, id, task, payload, job, token, attempt, deliveries)
end
