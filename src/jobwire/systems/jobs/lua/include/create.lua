-- What submit and cron share: a job is created whole, with its first event and its queue entry.
-- Indexes and counters are written once for the whole call, by write_indexes.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', now_ms)
local created, opened, indexed, expiries, renewals, named = 0, {}, {}, {}, {}, {}

-- J-7: when the keys of a job expire, for PEXPIREAT. Most jobs have the same ttl_s.
local function expiry_of(ttl_s)
  if not expiries[ttl_s] then
    expiries[ttl_s] = string.format('%.0f', now_ms + ttl_s * 1000)
    renewals[ttl_s] = string.format('%.0f', now_ms + ttl_s * 500)
  end
  return expiries[ttl_s]
end

-- No other command runs during a script: after the first entry of a queue the ids of the next entries
-- are known before they are added, so that a job's hash is written once.
local entry_ms, entry_seq = {}, {}
local function next_entry_id()
  local ms = entry_ms[queue]
  if not ms then return nil end
  entry_seq[queue] = entry_seq[queue] + 1
  return string.format('%s-%d', ms, entry_seq[queue])
end

local function extra_fields(entry_id, first, last)
  if entry_id then return 'entry_id', entry_id, unpack(ARGV, first, last) end
  return unpack(ARGV, first, last)
end

-- Create a job in the selected queue. Its extra fields (name, value) are the arguments from `first` to
-- `last`.
local function create(job_id, task, payload, ttl_s, delay_ms, idempotency, tenant, first, last)
  local job, events = job_key(job_id), events_key(job_id)
  local entry_id, expiry = delay_ms == '0' and next_entry_id() or nil, expiry_of(ttl_s)
  -- A small hash is searched from its beginning: what later transitions read and write comes first.
  redis.call('HSET', job, 'status', 'queued', 'updated_ts', now, 'ttl_s', ttl_s, 'created_ts', now,
    'result', '', 'error', '', 'job_id', job_id, 'task', task, 'payload', payload,
    extra_fields(entry_id, first, last))
  redis.call('PEXPIREAT', job, expiry)
  redis.call('XADD', events, '*',
    'type', 'queued', 'ts', now, 'step', 'gateway.enqueue', 'data', '{}')
  redis.call('PEXPIREAT', events, expiry)
  if delay_ms ~= '0' then
    redis.call('ZADD', delayed_key, now_ms + delay_ms, job_id)
  else
    local entry = redis.call('XADD', queue, entry_id or '*',
      'job_id', job_id, 'task', task, 'payload', payload)
    if not entry_id then
      redis.call('HSET', job, 'entry_id', entry)
      entry_ms[queue], entry_seq[queue] = string.match(entry, '^(%d+)-(%d+)$')
    end
  end
  if idempotency ~= '' then
    redis.call('SET', idempotency_key(idempotency), job_id, 'PXAT', expiry)
  end

  if queue_suffix ~= '' then named[queue_name] = true end
  created = created + 1
  opened[#opened + 1] = renewals[ttl_s]
  opened[#opened + 1] = job_id
  local list = indexed[tenant] or {}
  indexed[tenant] = list
  list[#list + 1] = now
  list[#list + 1] = job_id
end

-- A key of a wrong type is tolerated: the jobs are created, and will run.
local function write_indexes()
  if created == 0 then return end
  redis.pcall('ZADD', open_key, unpack(opened))
  for name in pairs(named) do redis.pcall('SADD', queues_key, name) end
  for tenant, list in pairs(indexed) do
    redis.pcall('ZADD', index_key(tenant), unpack(list))
    if tenant ~= '' then redis.pcall('ZADD', tenants_key, now, tenant) end
  end
  local minute = stats_key(math.floor(now_ms / 60000))
  if redis.pcall('HINCRBY', minute, 'submissions', created) == created then
    redis.call('EXPIRE', minute, 7200)
  end
end
