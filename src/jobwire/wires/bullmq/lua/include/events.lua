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

local function emit_trimmed(q, ...)
  redis.call('XADD', q .. 'events', 'MAXLEN', '~', max_events(q), '*', 'event', ...)
end

local function trim_events(q) redis.call('XTRIM', q .. 'events', 'MAXLEN', '~', max_events(q)) end

-- Where a job came from is left out for a new one.
local function emit_waiting(q, trimmed, id, prev)
  local fields = { 'waiting', 'jobId', id }
  if prev then
    fields[4], fields[5] = 'prev', prev
  end
  if extras then
    fields[#fields + 1] = 'timestamp'
    fields[#fields + 1] = text(now)
  end
  local send = trimmed and emit_trimmed or emit
  send(q, unpack(fields))
end
