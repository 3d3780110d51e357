#!lua flags=allow-oom
-- forget_tasks: remove tasks that no worker has registered for long from jobs:tasks.
--
-- A task is registered again at each heartbeat of its workers. A bounded piece per call.
--
-- Also touches, below the queue's prefix: jobs:tasks,
-- jobs:guard:forget_tasks
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, remembered_ms, cursor, scan_limit, period_ms
-- RETURNS
--   cursor    where the next call begins; `0` after the last task
--   removed   how many tasks were removed
-- CLAUSES J-10 J-37 J-41
-- INCLUDE keys guard
local consumer, remembered_ms, cursor, scan_limit, period_ms = unpack(ARGV)
local guarded_ms = already_done('forget_tasks', period_ms, consumer)
if guarded_ms then return {'guarded', guarded_ms} end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local removed = 0
local found = redis.call('HSCAN', tasks_key, cursor, 'COUNT', scan_limit)
for at = 1, #found[2], 2 do
  local seen = string.match(found[2][at + 1], '^{"seen_ts":(%d+),')
  if not seen or seen + remembered_ms < now_ms then
    redis.call('HDEL', tasks_key, found[2][at])
    removed = removed + 1
  end
end
return {found[1], removed}
