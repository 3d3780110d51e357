-- A job's progress, and its log; `keep` > 0 drops the oldest lines beyond it.
local function append_log(q, id, line, keep)
  local length = redis.call('RPUSH', q .. id .. ':logs', line)
  if keep > 0 then
    redis.call('LTRIM', q .. id .. ':logs', -keep, -1)
    return math.min(keep, length)
  end
  return length
end

local function write_progress(q, id, value, message, keep)
  redis.call('HSET', q .. id, 'progress', value)
  local event = { 'progress', 'jobId', id, 'data', value }
  if extras then
    local more = { 'progress', value, 'timestamp', text(now), 'message', message }
    for at = 1, message ~= '' and 6 or 4 do event[5 + at] = more[at] end
  end
  emit_trimmed(q, unpack(event))
  if message ~= '' then append_log(q, id, message, keep) end
end
