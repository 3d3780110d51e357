#!lua flags=allow-oom
-- clock: restart every lease after the server's clock was set back.
--
-- Idle times are counted by the server's clock: an entry that was delivered before the
-- jump has no idle time until the clock has caught up, and a dead worker's jobs would
-- not be reclaimed until then. Claimed for the consumer that has it, an entry is idle
-- from now on. Live workers and their tokens are not touched.
--
-- Also touches, below the queue's prefix: jobs:clock, jobs:guard:clock
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, lease_ms, lifetime_ms, cursor, scan_limit, period_ms
-- RETURNS
--   cursor   where the next call begins; `-` after the last entry, or if the clock was not set back
--   moved    how many leases were restarted
-- CLAUSES J-9 J-34 J-41
-- INCLUDE keys guard
local consumer, lease_ms, lifetime_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local cursor, scan_limit, period_ms = ARGV[4], tonumber(ARGV[5]), ARGV[6]

if already_done('clock', period_ms, consumer) then return {'guarded'} end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local noted_ms = tonumber(redis.call('GET', clock_key)) or 0
local pending = {}

-- A jump shorter than a lease delays reclaim by no more than that.
if now_ms + lease_ms < noted_ms then
  pending = redis.pcall('XPENDING', queue, 'workers', cursor, '+', scan_limit)
  if pending.err then pending = {} end
  for _, row in ipairs(pending) do
    local entry, holder = row[1], row[2]
    redis.call('XCLAIM', queue, 'workers', holder, 0, entry, 'JUSTID')
  end
end
-- Noted after the last entry: if this process dies before, another one begins again.
if #pending == scan_limit then return {'(' .. pending[scan_limit][1], scan_limit} end
redis.call('SET', clock_key, string.format('%.0f', now_ms), 'PX', lifetime_ms)
return {'-', #pending}
