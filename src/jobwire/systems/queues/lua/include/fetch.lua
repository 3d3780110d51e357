-- Taking the next job: due jobs are promoted first, limits are checked, then one job is started.

local function promote(q, ids)
  for _, id in ipairs(ids) do
    redis.call('ZREM', q .. 'delayed', id)
    local priority = priority_of(q, id)
    if priority > 0 then
      redis.call('ZADD', q .. 'prioritized', priority_score(q, priority), id)
    else
      redis.call('LPUSH', queue_state(q).waiting, id)
    end
    emit_waiting(q, false, id, 'delayed')
    redis.call('HSET', q .. id, 'delay', 0)
  end
end

-- At most 1,000 in a call: the server does nothing else meanwhile.
local function promote_due(q)
  local delayed = q .. 'delayed'
  local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  local last = (now + 1) * SHIFT - 1
  if not head or tonumber(head) > last then return end
  local raw = redis.call('ZRANGEBYSCORE', delayed, '-inf', text(now), 'LIMIT', 0, 1000)
  local due = redis.call(
    'ZRANGEBYSCORE', delayed, text(RAW_BELOW), text(last), 'LIMIT', 0, 1000 - #raw
  )
  promote(q, raw)
  promote(q, due)
  if #raw + #due > 0 then mark_work(q) end
end

-- How long a rate-limited queue has to wait, in ms; 0 where it may go on. A queue that was limited by
-- hand has 2^53 - 1 started jobs, more than `number` takes.
local function limited_for(q, max)
  if not max or max > (tonumber(redis.call('GET', q .. 'limiter')) or 0) then return 0 end
  local left = redis.call('PTTL', q .. 'limiter')
  if left == 0 then redis.call('DEL', q .. 'limiter') end
  return left > 0 and left or 0
end

-- What a worker has to know of a job, in this order; nil where there is no hash.
local function read_row(key)
  local row = redis.call(
    'HMGET', key, 'name', 'data', 'opts', 'timestamp', 'atm', 'ats', 'stacktrace', 'rjk', 'defa',
    'priority', 'parentKey'
  )
  if row[1] or row[2] or redis.call('EXISTS', key) == 1 then return row end
end

-- Many ids at once, where no limit has to be looked at before each of them.
local function pop_many(q, most)
  local ids = redis.call('RPOP', q .. 'wait', most) or {}
  if #ids == 0 then return ids end
  local fine, raised = pcall(redis.call, 'LPUSH', q .. 'active', unpack(ids))
  if not fine then
    for at = #ids, 1, -1 do redis.call('RPUSH', q .. 'wait', ids[at]) end
    error(raised, 0)
  end
  return ids
end

-- An id whose hash is gone cannot be run: it is dropped.
local function drop(q, id) redis.call('LREM', q .. 'active', 1, id) end

local function pop(q)
  for _ = 1, 100 do
    local id = redis.call('RPOPLPUSH', q .. 'wait', q .. 'active')
    if not id then
      local first = redis.call('ZPOPMIN', q .. 'prioritized')
      id = first[1]
      if not id then
        redis.call('DEL', q .. 'pc')
        return nil
      end
      local fine, raised = pcall(redis.call, 'LPUSH', q .. 'active', id)
      if not fine then
        redis.call('ZADD', q .. 'prioritized', first[2], id)
        error(raised, 0)
      end
    end
    local row = read_row(q .. id)
    if row then return id, row end
    drop(q, id)
  end
end

-- All jobs that this caller starts get the same fields, except the last: how often they were started.
local function write_start(key, by, starts)
  local fields = by.fields
  if not fields then
    fields = { 'processedOn', text(now) }
    if by.name ~= '' then
      fields[3], fields[4] = 'pb', by.name
    end
    if extras then
      fields[#fields + 1] = 'workerId'
      fields[#fields + 1] = by.worker_id
    end
    fields[#fields + 1] = 'ats'
    fields[#fields + 1] = starts
    by.fields = fields
  end
  fields[#fields] = starts
  redis.call('HSET', key, unpack(fields))
end

local function start(q, id, row, by, max, duration)
  if max and not row[9] then
    if redis.pcall('INCR', q .. 'limiter') == 1 then
      redis.call('PEXPIRE', q .. 'limiter', math.floor(math.abs(duration)))
    end
  end
  local key = q .. id
  if by.token ~= '0' then redis.call('SET', key .. ':lock', by.token, 'PX', by.lock_ms) end
  if extras then
    emit(
      q, 'active', 'jobId', id, 'prev', 'waiting', 'timestamp', text(now), 'workerId', by.worker_id
    )
  else
    emit(q, 'active', 'jobId', id, 'prev', 'waiting')
  end
  row[6] = next_count(row[6])
  write_start(key, by, row[6])
  return { 'job', id, row }
end

-- For an id that `pop_many` has moved; nil where there is no such job.
local function start_if_exists(q, id, by)
  local row = read_row(q .. id)
  if row then return start(q, id, row, by) end
  drop(q, id)
end

-- Whether or not there is more: the next worker looks for itself.
local function mark_next(q) redis.call('ZADD', q .. 'marker', 0, '0') end

-- What holds for the whole call, and due jobs promoted: read once however many jobs are started.
local function conditions(q, by)
  local row = redis.call('HMGET', q .. 'meta', 'paused', 'concurrency', 'max', 'duration')
  promote_due(q)
  return {
    paused = row[1], most = number(row[2]),
    max = number(row[3]) or by.limit_max > 0 and by.limit_max or nil,
    duration = by.limit_max > 0 and by.limit_ms or number(row[4]) or 0,
  }
end

-- When the next delayed job is due in ms; 0 if there is none.
local function due_text(q)
  local due = next_due(q)
  return due and text(math.floor(due)) or '0'
end

-- `by`: token, lock_ms, limit_max and limit_ms (0: no limiter), hold_ms (0: may start), name,
-- worker_id
local function fetch(q, by, under)
  local wait_ms = math.max(by.hold_ms, limited_for(q, under.max))
  if wait_ms > 0 then return { 'limited', wait_ms, due_text(q) } end
  if under.paused or under.most and redis.call('LLEN', q .. 'active') >= under.most then
    return { 'blocked' }
  end
  local id, row = pop(q)
  if id then return start(q, id, row, by, under.max, under.duration) end
  return { 'empty', due_text(q) }
end
