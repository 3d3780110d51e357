#!lua flags=allow-oom
-- janitor: remove entries and consumers that are no longer used.
--
-- The published contract asks no worker to delete an entry, so acknowledged ones would
-- stay forever. An entry is removed if it was delivered, is not pending, and its job has
-- ended or is gone. A consumer is removed if it is ours, was idle for long and has no
-- pending entry: deleting one drops its pending entries.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:worker:<consumer>,
-- jobs:guard:janitor
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, ours, idle_limit_ms, cursor, scan_limit, period_ms
-- RETURNS
--   cursor    where the next call begins; `-` after the last delivered entry
--   removed   how many entries and consumers were removed
-- CLAUSES J-9 J-39 J-41
-- INCLUDE keys job fence entry guard
local consumer, ours, idle_limit_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local cursor, scan_limit, period_ms = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local removed = 0

if already_done('janitor', period_ms, consumer) then return {'guarded'} end

local delivered
local groups = redis.pcall('XINFO', 'GROUPS', queue)
if groups.err then return {'-', 0} end
for _, row in ipairs(groups) do
  local group = fields_of(row)
  if group.name == 'workers' then delivered = group['last-delivered-id'] end
end
if not delivered then return {'-', 0} end

local rows = redis.call('XRANGE', queue, cursor, delivered, 'COUNT', scan_limit)
local last = '-'
for _, row in ipairs(rows) do
  local entry, id = row[1], fields_of(row[2]).job_id
  local status = id and redis.pcall('HGET', job_key(id), 'status')
  if type(status) ~= 'string' or terminal[status] then
    if not holder_of(entry) then removed = removed + redis.call('XDEL', queue, entry) end
  end
  last = '(' .. entry
end
if #rows < scan_limit then last = '-' end

if cursor == '-' then
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', queue, 'workers')) do
    local info = fields_of(row)
    local name = info.name
    if name ~= consumer and string.sub(name, 1, #ours) == ours and info.pending == 0
      and info.idle >= idle_limit_ms and redis.call('EXISTS', worker_key(name)) == 0 then
      redis.call('XGROUP', 'DELCONSUMER', queue, 'workers', name)
      removed = removed + 1
    end
  end
end
return {last, removed}
