-- Job schedulers: `repeat` has when each one's pending iteration is due, `repeat:<id>` its record.

-- Whether a job was made by a scheduler that still exists.
local function is_scheduled(q, id)
  local scheduler = redis.call('HGET', q .. id, 'rjk')
  return scheduler and redis.call('ZSCORE', q .. 'repeat', scheduler)
end

-- When the next iteration of an interval is due, and its place within the interval. `previous` is
-- the pending iteration, if there is one.
local function next_slot(every, offset, previous, start_ms)
  local due
  if previous then
    due = previous + every
    if due < now then
      due = math.floor(now / every) * every + offset
      if due <= now then due = due + every end
    end
  elseif start_ms then
    due = math.max(start_ms, now)
  elseif offset > 0 then
    due = math.floor(now / every) * every + offset
    if due <= now then due = due + every end
  else
    due = now
  end
  if offset == 0 then offset = due - math.floor(due / every) * every end
  return due, offset
end
