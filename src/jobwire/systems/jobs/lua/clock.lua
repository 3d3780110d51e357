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
--   consumer, lease_ms, lifetime_ms, scan_limit, period_ms
--   ...   queues and their cursors (each_queue)
-- RETURNS
--   cursors  queues, and where the next call begins; `-` after the last entry
--   moved    how many leases were restarted
-- CLAUSES J-9 J-34 J-41
-- INCLUDE keys queues guard
local consumer, lease_ms, lifetime_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local scan_limit, period_ms = tonumber(ARGV[4]), ARGV[5]

local guarded_ms = already_done('clock', period_ms, consumer)
if guarded_ms then return {'guarded', guarded_ms} end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local noted_ms = tonumber(redis.call('GET', clock_key)) or 0
local cursors, unfinished, moved = {}, 0, 0

local function restart_leases(cursor, queue_limit)
  local pending = redis.pcall('XPENDING', queue, 'workers', cursor, '+', queue_limit)
  if pending.err then return '-' end
  for _, row in ipairs(pending) do
    local entry, holder = row[1], row[2]
    redis.call('XCLAIM', queue, 'workers', holder, 0, entry, 'JUSTID')
    moved = moved + 1
  end
  return #pending == queue_limit and '(' .. pending[queue_limit][1] or '-'
end

-- A jump shorter than a lease delays reclaim by no more than that.
if now_ms + lease_ms < noted_ms then
  cursors, unfinished = each_queue(6, 'first', scan_limit, restart_leases)
end
-- Noted after the last entry: if this process dies before, another one begins again.
if unfinished == 0 then
  redis.call('SET', clock_key, string.format('%.0f', now_ms), 'PX', lifetime_ms)
end
return {cursors, moved}
