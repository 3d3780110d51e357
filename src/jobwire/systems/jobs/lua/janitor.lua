#!lua flags=allow-oom
-- janitor: remove entries and consumers that are no longer used.
--
-- The published contract asks no worker to delete an entry, so acknowledged ones would
-- stay forever. An entry is removed if it was delivered, is not pending, and its job has
-- ended or is gone. A consumer is removed if it is ours, was idle for long and has no
-- pending entry: deleting one drops its pending entries. A named queue without entries and
-- consumers is removed; the next job creates it again.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:worker:<consumer>,
-- jobs:queues, jobs:paused, jobs:guard:janitor
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, ours, idle_limit_ms, scan_limit, period_ms
--   ...   queues and their cursors (each_queue)
-- RETURNS
--   cursors   queues, and where the next call begins; `-` after the last delivered entry
--   removed   how many entries and consumers were removed
-- CLAUSES J-9 J-39 J-41
-- INCLUDE keys queues job fence entry guard
local consumer, ours, idle_limit_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local scan_limit, period_ms = tonumber(ARGV[4]), ARGV[5]
local removed = 0

local guarded_ms = already_done('janitor', period_ms, consumer)
if guarded_ms then return {'guarded', guarded_ms} end

local function remove_consumers()
  local left = 0
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', queue, 'workers')) do
    local info = fields_of(row)
    local name = info.name
    if name ~= consumer and string.sub(name, 1, #ours) == ours and info.pending == 0
      and info.idle >= idle_limit_ms and redis.call('EXISTS', worker_key(name)) == 0 then
      redis.call('XGROUP', 'DELCONSUMER', queue, 'workers', name)
      removed = removed + 1
    else
      left = left + 1
    end
  end
  return left
end

-- A paused queue stays paused until it is resumed.
local function remove_unused_queue(consumers)
  if queue_suffix == '' or consumers > 0 or redis.call('XLEN', queue) > 0 then return end
  if redis.call('SISMEMBER', paused_key, queue_name) == 1 then return end
  redis.call('DEL', queue)
  removed = removed + redis.call('SREM', queues_key, queue_name)
end

local function clean(cursor, queue_limit)
  local delivered
  local groups = redis.pcall('XINFO', 'GROUPS', queue)
  for _, row in ipairs(groups.err and {} or groups) do
    local group = fields_of(row)
    if group.name == 'workers' then delivered = group['last-delivered-id'] end
  end
  if not delivered then
    if groups.err or #groups == 0 then remove_unused_queue(0) end
    return '-'
  end
  local rows = redis.call('XRANGE', queue, cursor, delivered, 'COUNT', queue_limit)
  local last = '-'
  for _, row in ipairs(rows) do
    local entry, id = row[1], fields_of(row[2]).job_id
    local status = id and redis.pcall('HGET', job_key(id), 'status')
    if type(status) ~= 'string' or terminal[status] then
      if not holder_of(entry) then removed = removed + redis.call('XDEL', queue, entry) end
    end
    last = '(' .. entry
  end
  if cursor == '-' then remove_unused_queue(remove_consumers()) end
  return #rows < queue_limit and '-' or last
end

local cursors = each_queue(6, 'first', scan_limit, clean)
return {cursors, removed}
