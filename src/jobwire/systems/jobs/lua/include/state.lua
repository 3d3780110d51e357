-- What every script that changes a job shares: the server's time, the job's lifetime, its events, its
-- end, and the writes that are done once for a whole batch (flush).
local default_ttl_s, max_events = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', now_ms)

local cleared, closed, counts, begun_at = {}, {}, {}, {}

-- J-7: when the keys of a job with this ttl_s expire, for PEXPIREAT. A foreign gateway may have
-- written any text. Most jobs of a batch have the same ttl_s, so each text is parsed once.
local expiries = {}
local function expiry_of(text)
  text = text or default_ttl_s
  if not expiries[text] then
    local ttl_s = tonumber(text)
    local valid = ttl_s and ttl_s >= 1 and ttl_s <= 2592000 and ttl_s % 1 == 0
    expiries[text] = string.format('%.0f', now_ms + (valid and ttl_s or default_ttl_s) * 1000)
  end
  return expiries[text]
end

-- J-7: when keys with this expiry are extended again: at half of their lifetime.
local function renewal_of(expiry)
  return string.format('%.0f', now_ms + math.floor((expiry - now_ms) / 2))
end

-- J-7: whether keys that got their whole lifetime at `since_ms` (a text) have all of it left but a
-- thousandth, or a second. Times in ms have thirteen digits, so they compare as texts.
local fresh_since = {}
local function is_fresh(since_ms, expiry)
  if not fresh_since[expiry] then
    fresh_since[expiry] = string.format('%.0f', now_ms - math.min(1000, (expiry - now_ms) / 1000))
  end
  return since_ms and since_ms >= fresh_since[expiry] and since_ms <= now
end

-- D-29: how long a job has left until its deadline; nil without one. The caller has read `created_ts` and
-- `deadline_s`.
local function ms_left(job)
  local deadline_s = tonumber(job.deadline_s)
  return deadline_s and (tonumber(job.created_ts) or now_ms) + deadline_s * 1000 - now_ms
end

-- J-11: an idempotency key lives as long as its job. `name` is the job's field, if it has one.
local function extend_key(name, expiry)
  if name and name ~= '' then redis.call('PEXPIREAT', idempotency_key(name), expiry) end
end

-- The same where the field has not been read yet.
local function extend_key_of(id, expiry)
  extend_key(redis.call('HGET', job_key(id), 'idempotency_key'), expiry)
end

-- Extend all keys of a job. Most jobs have no record: the server ignores a key that is missing.
local function extend_ttl(id, expiry, name)
  redis.call('PEXPIREAT', job_key(id), expiry)
  redis.call('PEXPIREAT', events_key(id), expiry)
  redis.call('PEXPIREAT', steps_key(id), expiry)
  extend_key(name, expiry)
end

local function count(name, more) counts[name] = (counts[name] or 0) + (more or 1) end

-- Count a time span from `since_ms` (a text) until now. Most jobs of a batch have the same start, so
-- texts are counted here and parsed once, in flush.
local function count_since(kind, since_ms)
  local starts = begun_at[kind] or {}
  begun_at[kind] = starts
  starts[since_ms] = (starts[since_ms] or 0) + 1
end

-- The bucket of a time span: four buckets per octave, so that a quantile read from the counters is at
-- most a tenth off.
local function bucket_of(ms)
  if ms < 1 then return 0 end
  local part, octave = math.frexp(ms)
  local bucket = 4 * octave - 3
  if part >= 0.84089 then return bucket + 3 end
  if part >= 0.70710 then return bucket + 2 end
  if part >= 0.59460 then return bucket + 1 end
  return bucket
end

-- An events key of a wrong type must not keep a job from ending. Without `expiry` the lifetime stays.
local function emit(id, expiry, kind, step, data)
  local key = events_key(id)
  redis.pcall('XADD', key, '*', 'type', kind, 'ts', now, 'step', step, 'data', data)
  if expiry then redis.call('PEXPIREAT', key, expiry) end
end

-- The same where another attempt follows: the oldest events make space for its start and its end, so
-- that a job which is retried forever stays within max_events.
local function emit_trimmed(id, expiry, kind, step, data)
  redis.pcall('XTRIM', events_key(id), 'MAXLEN', max_events - 3)
  emit(id, expiry, kind, step, data)
end

-- The caller has read the hash in this script, so that no write creates an incomplete one (J-7).
-- Without `expiry` the lifetime stays.
local function update(id, expiry, ...)
  redis.call('HSET', job_key(id), 'updated_ts', now, ...)
  if expiry then redis.call('PEXPIREAT', job_key(id), expiry) end
end

-- J-6: the error object of an end that no worker wrote. Code and message need no JSON escaping.
local function problem(code, message, attempt)
  return '{"code":"' .. code .. '","message":"' .. message .. '","retryable":false,"attempt":'
    .. (tonumber(attempt) or 1) .. '}'
end

-- What follows a failed job: set by the include `failures` in scripts that end jobs with an error.
local on_error

-- J-31: the state first, then the terminal event; the entry is acknowledged after both, in flush. A job
-- that may have a parent ends by `finish`.
local function end_job(id, expiry, status, result, err, step, data, ...)
  update(id, expiry, 'status', status, 'result', result, 'error', err, ...)
  emit(id, expiry, status, step, data)
  count(status)
  if status == 'error' then on_error(id, err) end
  closed[#closed + 1] = id
end

-- D-15: the end of a child is recorded with its parent, in the same step (include awaits).
local record_end
local function finish(id, ...)
  end_job(id, ...)
  record_end(id, true)
end

-- From here on the token of the last delivery does not pass the fence.
local function clear_owner(id) redis.call('HDEL', job_key(id), 'owner') end

local function finish_canceled(id, expiry, attempt, step)
  local err = problem('canceled', 'canceled on request', attempt)
  finish(id, expiry, 'canceled', '', err, step, err)
  extend_key_of(id, expiry)
end

-- Append an entry to the selected queue.
local function enqueue(id, task, payload)
  local entry = redis.call('XADD', queue, '*',
    'job_id', id, 'task', task or '', 'payload', payload or '')
  redis.call('HSET', job_key(id), 'entry_id', entry)
  if queue_suffix ~= '' then redis.pcall('SADD', queues_key, queue_name) end
end

-- Mark an entry of the selected queue for removal by flush.
local function clear(entry)
  local entries = cleared[queue]
  if entries then
    entries[#entries + 1] = entry
  else
    cleared[queue] = {entry}
  end
end

-- R-4: an entry leaves the queue only here, after everything that replaces it was written.
local function flush()
  for stream, entries in pairs(cleared) do
    redis.pcall('XACK', stream, 'workers', unpack(entries))
    redis.call('XDEL', stream, unpack(entries))
  end
  if #closed > 0 then redis.pcall('ZREM', open_key, unpack(closed)) end
  for kind, starts in pairs(begun_at) do
    for since_ms, more in pairs(starts) do
      count(kind .. bucket_of(now_ms - (tonumber(since_ms) or now_ms)), more)
    end
  end
  if next(counts) then
    local key = stats_key(math.floor(now_ms / 60000))
    for name, more in pairs(counts) do redis.pcall('HINCRBY', key, name, more) end
    redis.call('EXPIRE', key, 7200)
  end
end
