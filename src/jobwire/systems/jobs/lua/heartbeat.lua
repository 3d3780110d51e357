#!lua flags=allow-oom
-- heartbeat: renew this worker's registration, and remember its tasks.
--
-- The registration and its lifetime are written together, so a dead worker's registration
-- expires. It is written whole each time, also for a server that was emptied. Readers
-- find registrations by the group's consumers, so the consumer is created here.
--
-- Its tasks stay in jobs:tasks after it is gone, so that they can be submitted while it restarts.
-- Of several live workers with one task, the one that was started last describes it.
--
-- Also touches, below the queue's prefix: jobs:worker:<consumer>, jobs:tasks, jobs:queues,
-- jobs:paused
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, lifetime_ms
--   ...   the registration: field, value
-- RETURNS
--   registered   the registration is written; then the names of all paused queues
-- CLAUSES J-1 J-10 J-37 J-53
-- INCLUDE keys
local consumer, lifetime_ms = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

-- In the default queue too, which it need not read: registrations are found there.
redis.pcall('XGROUP', 'CREATECONSUMER', queue, 'workers', consumer)
redis.call('HSETNX', worker_key(consumer), 'started_ts', now)
redis.call('HSET', worker_key(consumer), 'seen_ts', now, unpack(ARGV, 3))
redis.call('PEXPIRE', worker_key(consumer), lifetime_ms)

local started = redis.call('HGET', worker_key(consumer), 'started_ts')
-- A key of a wrong type is tolerated: the worker is registered nevertheless.
for at = 3, #ARGV, 2 do
  for name in string.gmatch(ARGV[at] == 'queues' and ARGV[at + 1] or '', '%S+') do
    select_queue(name)
    if queue_suffix ~= '' then
      redis.pcall('SADD', queues_key, name)
      redis.pcall('XGROUP', 'CREATECONSUMER', queue, 'workers', consumer)
    end
  end
  local task = string.match(ARGV[at], '^task:(.*)$')
  if task then
    local known = redis.pcall('HGET', tasks_key, task)
    local seen, by = string.match(type(known) == 'string' and known or '',
      '^{"seen_ts":(%d+),"started_ts":(%d+),')
    if not seen or tonumber(by) <= tonumber(started) or seen + lifetime_ms < tonumber(now) then
      redis.pcall('HSET', tasks_key, task, '{"seen_ts":' .. now .. ',"started_ts":' .. started .. ','
        .. string.sub(ARGV[at + 1], 2))
    end
  end
end
local paused = redis.pcall('SMEMBERS', paused_key)
return {'registered', unpack(paused.err and {} or paused)}
