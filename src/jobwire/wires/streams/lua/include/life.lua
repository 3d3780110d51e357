-- What every verb that moves a job shares: the server's clock, the job's lifetime, its events, its
-- end, and the bookkeeping that is done once for a whole batch (tidy).
local default_ttl_s, max_events = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', now_ms)

local terminal = {done = true, error = true, canceled = true}
local cleared, closed, counts, times = {}, {}, {}, {}

-- A stranger may have written 60.0 or 1e3, which EXPIRE does not understand. Most jobs of a batch
-- live equally long, so each text is looked at once.
local lifetimes = {}
local function ttl_of(text)
  if not text then return default_ttl_s end
  if not lifetimes[text] then
    local ttl_s = tonumber(text)
    local valid = ttl_s and ttl_s >= 1 and ttl_s <= 2592000 and ttl_s % 1 == 0
    lifetimes[text] = valid and string.format('%d', ttl_s) or default_ttl_s
  end
  return lifetimes[text]
end

local function count(name) counts[name] = (counts[name] or 0) + 1 end

-- How long something took is counted under a step of a scale, four to the octave, so that a
-- quantile read from the counters is at most a tenth off.
local function count_time(kind, ms)
  local step = 0
  if ms >= 1 then
    local part, octave = math.frexp(ms)
    step = 4 * octave - 3
    if part >= 0.84089 then step = step + 3
    elseif part >= 0.70710 then step = step + 2
    elseif part >= 0.59460 then step = step + 1 end
  end
  local steps = times[kind] or {}
  times[kind] = steps
  steps[step] = (steps[step] or 0) + 1
end

-- An events key of another type is somebody's mistake; it must not keep a job from ending.
local function emit(id, ttl_s, kind, step, data)
  local key = events_key(id)
  redis.pcall('XADD', key, '*', 'type', kind, 'ts', now, 'step', step, 'data', data)
  redis.call('EXPIRE', key, ttl_s)
end

-- The same where another attempt follows: the oldest events make room for its start and its end,
-- so that a job tried for ever has no more of them than it may.
local function emit_again(id, ttl_s, kind, step, data)
  redis.pcall('XTRIM', events_key(id), 'MAXLEN', max_events - 3)
  emit(id, ttl_s, kind, step, data)
end

-- The caller has seen the hash in this script: no write here revives half of one (J-7).
local function update(id, ttl_s, ...)
  redis.call('HSET', job_key(id), 'updated_ts', now, ...)
  redis.call('EXPIRE', job_key(id), ttl_s)
end

-- J-6, for ends that no worker wrote; code and message are words of ours, safe to paste.
local function problem(code, message, attempt)
  return '{"code":"' .. code .. '","message":"' .. message .. '","retryable":false,"attempt":'
    .. (tonumber(attempt) or 1) .. '}'
end

-- J-31: the state first, then the terminal event; the entry is acked after both, in tidy.
local function finish(id, ttl_s, status, result, err, step, data, ...)
  update(id, ttl_s, 'status', status, 'result', result, 'error', err, ...)
  emit(id, ttl_s, status, step, data)
  count(status)
  closed[#closed + 1] = id
end

-- The last holder has no part in what others do to the job: its token opens nothing any more.
local function disown(id) redis.call('HDEL', job_key(id), 'owner') end

local function finish_canceled(id, ttl_s, attempt, step)
  local err = problem('canceled', 'canceled on request', attempt)
  finish(id, ttl_s, 'canceled', '', err, step, err)
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
  for kind, steps in pairs(times) do
    for step, more in pairs(steps) do counts[kind .. step] = more end
  end
  if next(counts) then
    local key = stats_key(math.floor(now_ms / 60000))
    for name, more in pairs(counts) do redis.pcall('HINCRBY', key, name, more) end
    redis.call('EXPIRE', key, 7200)
  end
end
