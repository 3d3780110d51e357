-- Putting a job where a worker finds it, and waking a worker that blocks on `marker`.

-- npm BullMQ 5 keeps the jobs of a paused queue in the list `paused`, and resumes by renaming that
-- list over `wait`: whatever is in `wait` then is lost. Programs of its protocol need not write a
-- version, and every later program merges the list.
local function has_paused_list(q, version)
  return not version or string.find(version, '^bullmq:5%.')
    or redis.call('EXISTS', q .. 'paused') == 1
end

-- What the queue is set to, read once in a script; `waiting` is the key of the waiting jobs.
local queues = {}
local function queue_state(q)
  local found = queues[q]
  if not found then
    local row = redis.call('HMGET', q .. 'meta', 'paused', 'concurrency', 'version')
    local aside = row[1] and has_paused_list(q, row[3])
    found = {
      paused = row[1], most = number(row[2]), waiting = q .. (aside and 'paused' or 'wait'),
    }
    queues[q] = found
  end
  return found
end

-- True while no worker may start a job: paused, or as many active as allowed.
local function is_blocked(q)
  local found = queue_state(q)
  if found.paused then return true end
  return found.most and redis.call('LLEN', q .. 'active') >= found.most or false
end

-- A marker that this script has set is still there. Where the server refuses it, workers notice the
-- job a little later.
local marked = {}
local function mark_work(q)
  if marked[q] or is_blocked(q) then return end
  redis.pcall('ZADD', q .. 'marker', 0, '0')
  marked[q] = true
end

-- When the first delayed job is due in ms, maybe with a fraction; nil where there is none, or its time
-- is no time.
local function next_due(q)
  local head = redis.call('ZRANGE', q .. 'delayed', 0, 0, 'WITHSCORES')
  if not head[1] then return nil end
  local score = math.max(0, tonumber(head[2]))
  if score >= RAW_BELOW then return number(score / SHIFT) end
  local shifted =
    redis.call('ZRANGEBYSCORE', q .. 'delayed', RAW_BELOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return shifted[1] and math.min(score, tonumber(shifted[2]) / SHIFT) or score
end

local function mark_delayed(q)
  local due = next_due(q)
  if due then redis.call('ZADD', q .. 'marker', due, '1') end
end

-- Higher priority is a smaller number; jobs of one priority leave in the order of their arrival.
local function priority_score(q, priority)
  return priority * 4294967296 + redis.call('INCR', q .. 'pc') % 4294967296
end

-- A producer that knows only the published contract writes no field `priority`.
local function priority_of(q, id)
  local found = redis.call('HGET', q .. id, 'priority')
  if not found then
    local opts = decoded(redis.call('HGET', q .. id, 'opts'))
    found = opts and opts.priority
  end
  return number(found) or 0
end

-- Workers take from the right end of the list: `first` jobs go there, others to the left.
local function push(q, id, priority, first)
  if priority > 0 then
    redis.call('ZADD', q .. 'prioritized', priority_score(q, priority), id)
  else
    redis.call(first and 'RPUSH' or 'LPUSH', queue_state(q).waiting, id)
  end
  mark_work(q)
end

-- Jobs that are due in the same millisecond keep their order by the low bits of the score.
local function push_delayed(q, id, due)
  local low, high = due * SHIFT, (due + 1) * SHIFT - 1
  local last = redis.call(
    'ZREVRANGEBYSCORE', q .. 'delayed', text(high), text(low), 'WITHSCORES', 'LIMIT', 0, 1
  )
  local score = last[1] and math.min(tonumber(last[2]) + 1, high) or low
  redis.call('ZADD', q .. 'delayed', text(score), id)
end

local function delay(q, id, delay_ms)
  local due = delay_ms > 0 and now + delay_ms or now
  push_delayed(q, id, due)
  emit_trimmed(q, 'delayed', 'jobId', id, 'delay', text(due))
end
