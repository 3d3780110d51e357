-- The next job of a queue, and for how long it has waited.
local function next_id()
  return redis.call('LINDEX', queue .. 'wait', -1) or redis.call('LINDEX', queue .. 'paused', -1)
    or redis.call('ZRANGE', queue .. 'prioritized', 0, 0)[1]
end

-- From when the job might have started: a delay of its own does not count.
local function age_ms(id)
  local row = redis.call('HMGET', queue .. id, 'timestamp', 'opts')
  local since = number(row[1])
  if not since then return -1 end
  local opts = decoded(row[2])
  return math.max(0, now - since - (opts and number(opts.delay) or 0))
end
