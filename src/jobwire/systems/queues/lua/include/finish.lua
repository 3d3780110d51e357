-- What a finished job leaves behind: its place among the finished, and counts by minute.

local MOST_REMOVED = 10000

-- Jobs of one call that end in the same way: what can be written for all of them at once.
local unlocked, unstalled, finished = {}, {}, { completed = {}, failed = {} }

local function forget_flush()
  unlocked, unstalled, finished = {}, {}, { completed = {}, failed = {} }
end

local function flush(q)
  if #unlocked > 0 then
    redis.call('DEL', unpack(unlocked))
    redis.call('SREM', q .. 'stalled', unpack(unstalled))
    unlocked, unstalled = {}, {}
  end
  for target, places in pairs(finished) do
    if #places > 0 then redis.call('ZADD', q .. target, unpack(places)) end
    finished[target] = {}
  end
end

-- `keep`: count (-1: all), age_s (-1: any), limit of removals by age
local function retain(q, id, target, keep)
  local places = finished[target]
  places[#places + 1], places[#places + 2] = text(now), id
  if keep.age_s < 0 and keep.count <= 0 then return end
  flush(q)
  if keep.age_s >= 0 then
    local oldest = text(now - keep.age_s * 1000)
    local old = redis.call('ZREVRANGEBYSCORE', q .. target, oldest, '-inf', 'LIMIT', 0, keep.limit)
    for _, each in ipairs(old) do remove_job(q, each) end
    if #old > 0 then
      for at = 1, #old, 1000 do
        redis.call('ZREM', q .. target, unpack(old, at, math.min(at + 999, #old)))
      end
    end
  end
  if keep.count > 0 then
    -- A new rule on a long list is carried out over several settles: the server does nothing else
    -- meanwhile.
    local first = math.max(keep.count, redis.call('ZCARD', q .. target) - MOST_REMOVED)
    local beyond = redis.call('ZREVRANGE', q .. target, first, -1)
    for _, each in ipairs(beyond) do remove_job(q, each) end
    if #beyond > 0 then redis.call('ZREMRANGEBYRANK', q .. target, 0, #beyond - 1) end
  end
end

-- One number a minute, newest first; the current minute is not in the list yet.
local function count_minute(q, target, points)
  local key = q .. 'metrics:' .. target
  local total = count(key, 'count')
  local row = redis.call('HMGET', key, 'prevTS', 'prevCount')
  if not row[1] then
    redis.call('HSET', key, 'prevTS', text(now), 'prevCount', 0)
    return
  end
  local minutes = math.floor(now / 60000) - math.floor((number(row[1]) or now) / 60000)
  minutes = math.min(minutes, points)
  if minutes <= 0 then return end
  redis.call('LPUSH', key .. ':data', text(total - 1 - (number(row[2]) or 0)))
  for _ = 2, minutes do redis.call('LPUSH', key .. ':data', 0) end
  redis.call('LTRIM', key .. ':data', 0, points - 1)
  redis.call('HSET', key, 'prevCount', text(total - 1), 'prevTS', text(now))
end
