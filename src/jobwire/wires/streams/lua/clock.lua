#!lua flags=allow-oom
-- clock: after the server's clock was set back, let every lease begin anew.
--
-- Idle times are counted by the server's clock: an entry that was delivered before the
-- jump has no idle time until the clock has caught up, and a dead worker's jobs would
-- not be reclaimed for as long. Claimed for the consumer that has it, an entry is idle
-- from now on. Living workers and their tokens are not touched.
--
-- Also touches, below the queue's prefix: jobs:clock, jobs:guard:clock
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, lease_ms, lifetime_ms, cursor, look, period_ms
-- RETURNS
--   cursor   where to go on; `-` after the last entry, or if the clock was not set back
--   moved    how many entries begin anew
-- CLAUSES J-9 J-34 J-41
-- INCLUDE keys guard
local consumer, lease_ms, lifetime_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local cursor, look, period_ms = ARGV[4], tonumber(ARGV[5]), ARGV[6]

if someone_did('clock', period_ms, consumer) then return {'guarded'} end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local noted_ms = tonumber(redis.call('GET', clock_key)) or 0
local list = {}

-- A jump shorter than a lease delays reclaim by no more than that.
if now_ms + lease_ms < noted_ms then
  list = redis.pcall('XPENDING', queue, 'workers', cursor, '+', look)
  if list.err then list = {} end
  for _, row in ipairs(list) do
    redis.call('XCLAIM', queue, 'workers', row[2], 0, row[1], 'JUSTID')
  end
end
-- Noted when all entries were seen: a process that dies on the way leaves the rest to others.
if #list == look then return {'(' .. list[look][1], look} end
redis.call('SET', clock_key, string.format('%.0f', now_ms), 'PX', lifetime_ms)
return {'-', #list}
