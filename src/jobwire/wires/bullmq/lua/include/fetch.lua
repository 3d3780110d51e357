-- Taking the next job: due jobs are promoted first, limits are checked, then one job is started.

local function promote(q, ids)
  for _, id in ipairs(ids) do
    redis.call('ZREM', q .. 'delayed', id)
    local priority = priority_of(q, id)
    if priority > 0 then
      redis.call('ZADD', q .. 'prioritized', priority_score(q, priority), id)
    else
      redis.call('LPUSH', q .. 'wait', id)
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

-- How long a rate-limited queue has to wait, in ms; 0 where it may go on.
local function limited_for(q, max)
  if not max or max > (number(redis.call('GET', q .. 'limiter')) or 0) then return 0 end
  local left = redis.call('PTTL', q .. 'limiter')
  if left == 0 then redis.call('DEL', q .. 'limiter') end
  return left > 0 and left or 0
end

-- An id whose hash is gone cannot be run: it is dropped, and the next one is looked at.
local function pop(q)
  for _ = 1, 100 do
    local id = redis.call('RPOPLPUSH', q .. 'wait', q .. 'active')
    if not id then
      id = redis.call('ZPOPMIN', q .. 'prioritized')[1]
      if not id then
        redis.call('DEL', q .. 'pc')
        return nil
      end
      redis.call('LPUSH', q .. 'active', id)
    end
    if redis.call('EXISTS', q .. id) == 1 then return id end
    redis.call('LREM', q .. 'active', 1, id)
  end
end

local function start(q, id, by, max, duration)
  if max and redis.call('HEXISTS', q .. id, 'defa') == 0 then
    if redis.pcall('INCR', q .. 'limiter') == 1 then
      redis.call('PEXPIRE', q .. 'limiter', math.floor(math.abs(duration)))
    end
  end
  if by.token ~= '0' then redis.call('SET', q .. id .. ':lock', by.token, 'PX', by.lock_ms) end
  local event, fields = { 'active', 'jobId', id, 'prev', 'waiting' }, { 'processedOn', text(now) }
  if by.name ~= '' then
    fields[3], fields[4] = 'pb', by.name
  end
  if extras then
    event[6], event[7], event[8], event[9] = 'timestamp', text(now), 'workerId', by.worker_id
    fields[#fields + 1] = 'workerId'
    fields[#fields + 1] = by.worker_id
  end
  emit(q, unpack(event))
  redis.call('HSET', q .. id, unpack(fields))
  count(q .. id, 'ats')
  return { 'job', id, redis.call('HGETALL', q .. id) }
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

-- `by`: token, lock_ms, limit_max and limit_ms (0: no limiter), name, worker_id
local function fetch_under(q, by, under)
  local wait_ms = limited_for(q, under.max)
  if wait_ms > 0 then return { 'limited', wait_ms } end
  if under.paused or under.most and redis.call('LLEN', q .. 'active') >= under.most then
    return { 'blocked' }
  end
  local id = pop(q)
  if id then return start(q, id, by, under.max, under.duration) end
  local due = next_due(q)
  return { 'empty', due and text(math.floor(due)) or '0' }
end

local function fetch(q, by)
  local found = fetch_under(q, by, conditions(q, by))
  if found[1] == 'job' then mark_next(q) end
  return found
end

local function caller(at)
  return {
    token = ARGV[at], lock_ms = ARGV[at + 1], limit_max = tonumber(ARGV[at + 2]),
    limit_ms = tonumber(ARGV[at + 3]), name = ARGV[at + 4], worker_id = ARGV[at + 5],
  }
end
