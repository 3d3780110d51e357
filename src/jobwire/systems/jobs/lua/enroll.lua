#!lua flags=allow-oom
-- enroll: read the last due time of a cron schedule that has run, and the server's time.
--
-- A schedule that is new or was changed begins now: earlier due times are not missed runs.
-- While workers with the old schedule and workers with the new one exist together, each
-- schedule has its own state; one that no worker has enrolled for gone_ms is removed. A last due time
-- in the future ran before the server's clock was set back: the schedule goes on from now.
--
-- Also touches, below the queue's prefix: jobs:cron:<name>, jobs:cron-job:<name>, jobs:crons
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   name, entry, lifetime_s, gone_ms, ahead_ms, job
-- RETURNS
--   enrolled   then the last due time, and the server's time, in ms
-- CLAUSES J-52
-- INCLUDE keys
local name, entry, lifetime_s, gone_ms, ahead_ms, job = unpack(ARGV)
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local last_due = now
local schedules = redis.call('HGETALL', cron_key(name))
for at = 1, #schedules, 2 do
  local due, enrolled_ms = string.match(schedules[at + 1], '^(%d+) (%d+)$')
  if schedules[at] == entry then
    if tonumber(due) <= now + ahead_ms then last_due = due end
  elseif enrolled_ms + gone_ms < tonumber(now) then
    redis.call('HDEL', cron_key(name), schedules[at])
  end
end
redis.call('HSET', cron_key(name), entry, last_due .. ' ' .. now)
redis.call('EXPIRE', cron_key(name), lifetime_s)
if job ~= '' then redis.call('SET', cron_job_key(name), job, 'EX', lifetime_s) end
redis.call('ZADD', crons_key, now, name)
redis.call('ZREMRANGEBYSCORE', crons_key, '-inf', now - lifetime_s * 1000)
redis.call('EXPIRE', crons_key, lifetime_s)
return {'enrolled', last_due, now}
