#!lua flags=allow-oom
-- resume_cron: let a paused cron entry run again.
--
-- It goes on from now: due times that passed while it was paused are not missed runs.
--
-- Also touches, below the queue's prefix: jobs:cron:<name>, jobs:cron-paused, jobs:crons
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   name
-- RETURNS
--   resumed   the entry is not paused any more
--   unknown   there is no such entry
-- CLAUSES J-52
-- INCLUDE keys
local name = ARGV[1]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

if redis.call('SREM', paused_crons_key, name) == 0 then
  return redis.call('ZSCORE', crons_key, name) and 'resumed' or 'unknown'
end
local schedules = redis.call('HGETALL', cron_key(name))
for at = 1, #schedules, 2 do
  local enrolled_ms = string.match(schedules[at + 1], ' (%d+)$')
  redis.call('HSET', cron_key(name), schedules[at], now .. ' ' .. (enrolled_ms or now))
end
return 'resumed'
