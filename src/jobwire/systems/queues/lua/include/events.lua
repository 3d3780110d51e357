-- The queue's event stream. `event` is the first field of every entry; declared extras come last.
local most = {}
local function max_events(q)
  if most[q] then return most[q] end
  local found = redis.call('HGET', q .. 'meta', 'opts.maxLenEvents')
  if not found then
    found = 10000
    redis.call('HSET', q .. 'meta', 'opts.maxLenEvents', found)
  end
  most[q] = found
  return found
end

local function emit(q, ...) redis.call('XADD', q .. 'events', '*', 'event', ...) end

-- A script that makes many jobs trims the stream with the last one.
local trims = true
local function emit_trimmed(q, ...)
  if not trims then return emit(q, ...) end
  redis.call('XADD', q .. 'events', 'MAXLEN', '~', max_events(q), '*', 'event', ...)
end

local function trim_events(q) redis.call('XTRIM', q .. 'events', 'MAXLEN', '~', max_events(q)) end

-- Where a job came from is left out for a new one.
local function emit_waiting(q, trimmed, id, prev)
  local send = trimmed and emit_trimmed or emit
  if not extras then
    if prev then send(q, 'waiting', 'jobId', id, 'prev', prev) else send(q, 'waiting', 'jobId', id) end
  elseif prev then
    send(q, 'waiting', 'jobId', id, 'prev', prev, 'timestamp', text(now))
  else
    send(q, 'waiting', 'jobId', id, 'timestamp', text(now))
  end
end
