#!lua flags=allow-oom
-- overview: all queues, the workers and the current minute, for an operator. Writes nothing.
--
-- Every open page asks every two seconds: one call instead of a dozen.
--
-- Also touches, below the queue's prefix: jobs:stream:<name>, jobs:delayed, jobs:suspended, jobs:paused,
-- jobs:stats:<minute>, jobs:worker:<consumer>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   minutes
--   ...   names of the queues
-- RETURNS
--   now_ms    the server's time
--   delayed   how many jobs are not due yet
--   suspended   how many jobs are suspended
--   queues    a flat list, for each queue: waiting and running jobs, the age of the oldest waiting job
--             in ms or -1, 1 if the queue is paused
--   workers   a flat list, for each consumer of the default queue: its name, milliseconds since its
--             last call, and its fields seen_ts, slots and queues, empty where it has none
--   counters  of the current minute: field, value
--   stored    of the `minutes` before, those that have counters
-- CLAUSES O-11 J-53
-- INCLUDE keys entry
local minutes = tonumber(ARGV[1])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local minute = math.floor(now_ms / 60000)

local function rows_of(reply) return reply.err and {} or reply end

local function group()
  for _, row in ipairs(rows_of(redis.pcall('XINFO', 'GROUPS', queue))) do
    local found = fields_of(row)
    if found.name == 'workers' then return found.pending, found['last-delivered-id'] end
  end
  return 0, '0-0'
end

local queues, workers = {}, {}
for at = 2, #ARGV do
  select_queue(ARGV[at])
  local running, last = group()
  local first = rows_of(redis.pcall('XRANGE', queue, '(' .. last, '+', 'COUNT', 1))[1]
  -- An entry that a foreign worker acknowledged and did not delete counts until janitor runs.
  local waiting = first and math.max(0, redis.call('XLEN', queue) - running) or 0
  local age_ms = first and math.max(0, now_ms - tonumber(string.match(first[1], '^%d+'))) or -1
  local paused = redis.pcall('SISMEMBER', paused_key, ARGV[at]) == 1 and 1 or 0
  for _, number in ipairs({waiting, running, age_ms, paused}) do queues[#queues + 1] = number end
end
select_queue('default')
for _, row in ipairs(rows_of(redis.pcall('XINFO', 'CONSUMERS', queue, 'workers'))) do
  local found = fields_of(row)
  local known = rows_of(redis.pcall('HMGET', worker_key(found.name), 'seen_ts', 'slots', 'queues'))
  for _, text in ipairs({found.name, tostring(found.idle)}) do workers[#workers + 1] = text end
  for at = 1, 3 do workers[#workers + 1] = known[at] or '' end
end

local before = {}
for at = 1, minutes do before[at] = stats_key(minute - at) end
local function size(key)
  local found = redis.pcall('ZCARD', key)
  return type(found) == 'number' and found or 0
end
return {now_ms, size(delayed_key), size(suspended_key), queues, workers,
  rows_of(redis.pcall('HGETALL', stats_key(minute))), redis.call('EXISTS', unpack(before))}
