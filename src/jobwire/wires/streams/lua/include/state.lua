-- What every verb that moves a job shares: the server's clock, the job's lifetime, its events, its
-- end, and the bookkeeping that is done once for a whole batch (tidy).
local default_ttl_s, max_events = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', now_ms)

local terminal = {done = true, error = true, canceled = true}
local cleared, closed, counts, sinces = {}, {}, {}, {}

-- J-7: when the keys of a job expire whose ttl_s is this text; a stranger may have written anything.
-- Most jobs of a batch live equally long, so each text is looked at once. It goes into a PEXPIREAT,
-- which is what the server makes of every EXPIRE.
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

-- J-7: when the keys that expire then are to be renewed: at half of their life.
local function renewal_of(expiry)
  return string.format('%.0f', now_ms + math.floor((expiry - now_ms) / 2))
end

-- J-11: an idempotency key lives as long as its job. `name` is the job's field, where it has one.
local function extend_key(name, expiry)
  if name and name ~= '' then redis.call('PEXPIREAT', idempotency_key(name), expiry) end
end

-- The same where the field was not read with others.
local function extend_key_of(id, expiry)
  extend_key(redis.call('HGET', job_key(id), 'idempotency_key'), expiry)
end

-- All keys of a job.
local function extend_ttl(id, expiry, name)
  redis.call('PEXPIREAT', job_key(id), expiry)
  redis.call('PEXPIREAT', events_key(id), expiry)
  extend_key(name, expiry)
end

local function count(name, more) counts[name] = (counts[name] or 0) + (more or 1) end

-- That something took from `since` (ms, as text) until now. Most of a batch share their beginning,
-- so the texts are counted here, and understood in tidy.
local function count_since(kind, since)
  local seen = sinces[kind] or {}
  sinces[kind] = seen
  seen[since] = (seen[since] or 0) + 1
end

-- How long something took is counted under a step of a scale, four to the octave, so that a
-- quantile read from the counters is at most a tenth off.
local function step_of(ms)
  if ms < 1 then return 0 end
  local part, octave = math.frexp(ms)
  local step = 4 * octave - 3
  if part >= 0.84089 then return step + 3 end
  if part >= 0.70710 then return step + 2 end
  if part >= 0.59460 then return step + 1 end
  return step
end

-- An events key of another type is somebody's mistake; it must not keep a job from ending.
local function emit(id, expiry, kind, step, data)
  local key = events_key(id)
  redis.pcall('XADD', key, '*', 'type', kind, 'ts', now, 'step', step, 'data', data)
  redis.call('PEXPIREAT', key, expiry)
end

-- The same where another attempt follows: the oldest events make room for its start and its end,
-- so that a job tried for ever has no more of them than it may.
local function emit_again(id, expiry, kind, step, data)
  redis.pcall('XTRIM', events_key(id), 'MAXLEN', max_events - 3)
  emit(id, expiry, kind, step, data)
end

-- The caller has seen the hash in this script: no write here revives half of one (J-7).
local function update(id, expiry, ...)
  redis.call('HSET', job_key(id), 'updated_ts', now, ...)
  redis.call('PEXPIREAT', job_key(id), expiry)
end

-- J-6, for ends that no worker wrote; code and message are words of ours, safe to paste.
local function problem(code, message, attempt)
  return '{"code":"' .. code .. '","message":"' .. message .. '","retryable":false,"attempt":'
    .. (tonumber(attempt) or 1) .. '}'
end

-- J-31: the state first, then the terminal event; the entry is acked after both, in tidy.
local function finish(id, expiry, status, result, err, step, data, ...)
  update(id, expiry, 'status', status, 'result', result, 'error', err, ...)
  emit(id, expiry, status, step, data)
  count(status)
  closed[#closed + 1] = id
end

-- The last holder has no part in what others do to the job: its token opens nothing any more.
local function disown(id) redis.call('HDEL', job_key(id), 'owner') end

local function finish_canceled(id, expiry, attempt, step)
  local err = problem('canceled', 'canceled on request', attempt)
  finish(id, expiry, 'canceled', '', err, step, err)
  extend_key_of(id, expiry)
end

local function enqueue(id, task, payload)
  local entry = redis.call('XADD', queue, '*',
    'job_id', id, 'task', task or '', 'payload', payload or '')
  redis.call('HSET', job_key(id), 'entry_id', entry)
end

-- Do something for one job of many: what the server refuses to do for it harms no other. Whatever
-- stops at a refusal can be asked again.
local function apart(act, ...)
  local done, answer = pcall(act, ...)
  if done then return answer end
  return 'refused'
end

-- Whether an answer says that the server would not even look. A key of another type was looked at,
-- and is no job; of one that may not be read nothing is known, and nothing must be cleared away.
local function refused(answer) return answer.err and string.sub(answer.err, 1, 9) ~= 'WRONGTYPE' end

-- Fields of a job, which may be gone: then it has none.
local function fields(id, ...)
  local row = redis.pcall('HMGET', job_key(id), ...)
  if refused(row) then error(row.err) end
  return row.err and {} or row
end

local function clear(entry) cleared[#cleared + 1] = entry end

-- R-4: only here does an entry leave the queue, after everything that replaces it was written.
local function tidy()
  if #cleared > 0 then
    redis.pcall('XACK', queue, 'workers', unpack(cleared))
    redis.call('XDEL', queue, unpack(cleared))
  end
  if #closed > 0 then redis.pcall('ZREM', open_key, unpack(closed)) end
  for kind, seen in pairs(sinces) do
    for since, more in pairs(seen) do
      count(kind .. step_of(now_ms - (tonumber(since) or now_ms)), more)
    end
  end
  if next(counts) then
    local key = stats_key(math.floor(now_ms / 60000))
    for name, more in pairs(counts) do redis.pcall('HINCRBY', key, name, more) end
    redis.call('EXPIRE', key, 7200)
  end
end
