-- What submit and cron share: a job appears whole, with its first event and its place in line.
-- What is kept of all jobs together is written once for the whole call, by keep_books.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', now_ms)
local made, opened, indexed, expiries, renewals = 0, {}, {}, {}, {}

-- J-7: when the keys of a job expire; most live equally long. It goes into a PEXPIREAT, which is what
-- the server makes of every EXPIRE.
local function expiry_of(ttl_s)
  if not expiries[ttl_s] then
    expiries[ttl_s] = string.format('%.0f', now_ms + ttl_s * 1000)
    renewals[ttl_s] = string.format('%.0f', now_ms + ttl_s * 500)
  end
  return expiries[ttl_s]
end

-- Nobody else writes while a script runs: after the first entry of a call the ids of the others are
-- known beforehand, so that a job's hash is written once.
local entry_ms, entry_seq
local function place_ahead()
  if not entry_ms then return nil end
  entry_seq = entry_seq + 1
  return string.format('%s-%d', entry_ms, entry_seq)
end

local function extras(place, first, last)
  if place then return 'entry_id', place, unpack(ARGV, first, last) end
  return unpack(ARGV, first, last)
end

-- The job's extra fields (name, value) are the arguments from `first` to `last`.
local function make(job_id, task, payload, ttl_s, delay_ms, idempotency, tenant, first, last)
  local job, events = job_key(job_id), events_key(job_id)
  local place, expiry = delay_ms == '0' and place_ahead() or nil, expiry_of(ttl_s)
  redis.call('HSET', job, 'job_id', job_id, 'task', task, 'payload', payload, 'status', 'queued',
    'created_ts', now, 'updated_ts', now, 'ttl_s', ttl_s, 'result', '', 'error', '',
    extras(place, first, last))
  redis.call('PEXPIREAT', job, expiry)
  redis.call('XADD', events, '*',
    'type', 'queued', 'ts', now, 'step', 'gateway.enqueue', 'data', '{}')
  redis.call('PEXPIREAT', events, expiry)
  if delay_ms ~= '0' then
    redis.call('ZADD', delayed_key, now_ms + delay_ms, job_id)
  else
    local entry = redis.call('XADD', queue, place or '*',
      'job_id', job_id, 'task', task, 'payload', payload)
    if not place then
      redis.call('HSET', job, 'entry_id', entry)
      entry_ms, entry_seq = string.match(entry, '^(%d+)-(%d+)$')
    end
  end
  if idempotency ~= '' then
    redis.call('SET', idempotency_key(idempotency), job_id, 'PXAT', expiry)
  end

  made = made + 1
  opened[#opened + 1] = renewals[ttl_s]
  opened[#opened + 1] = job_id
  local list = indexed[tenant] or {}
  indexed[tenant] = list
  list[#list + 1] = now
  list[#list + 1] = job_id
end

-- A key of another type is somebody's mistake; the jobs are made, and will run.
local function keep_books()
  if made == 0 then return end
  redis.pcall('ZADD', open_key, unpack(opened))
  for tenant, list in pairs(indexed) do
    redis.pcall('ZADD', index_key(tenant), unpack(list))
    if tenant ~= '' then redis.pcall('ZADD', tenants_key, now, tenant) end
  end
  local minute = stats_key(math.floor(now_ms / 60000))
  if redis.pcall('HINCRBY', minute, 'submissions', made) == made then
    redis.call('EXPIRE', minute, 7200)
  end
end
