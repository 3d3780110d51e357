#!lua flags=allow-oom
-- janitor: remove what strangers' workers leave behind in the queue and the group.
--
-- The published contract asks nobody to delete an entry, so acked ones would stay
-- for ever. Only those go that were delivered, are pending with nobody, and whose
-- job has ended or is gone. Consumers go only if ours, long silent and without a
-- pending entry: deleting one drops its pending entries.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:worker:<consumer>,
-- jobs:guard:janitor
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, ours, silent_ms, cursor, look, period_ms
-- RETURNS
--   cursor    where to go on; `-` after the last delivered entry
--   removed   how many entries and consumers went
-- CLAUSES J-9 J-39 J-41
-- INCLUDE keys fence entry guard
local consumer, ours, silent_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local cursor, look, period_ms = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local terminal = {done = true, error = true, canceled = true}
local removed = 0

if someone_did('janitor', period_ms, consumer) then return {'guarded'} end

local delivered
local groups = redis.pcall('XINFO', 'GROUPS', queue)
if groups.err then return {'-', 0} end
for _, row in ipairs(groups) do
  local group = fields_of(row)
  if group.name == 'workers' then delivered = group['last-delivered-id'] end
end
if not delivered then return {'-', 0} end

local rows = redis.call('XRANGE', queue, cursor, delivered, 'COUNT', look)
local last = '-'
for _, row in ipairs(rows) do
  local id = fields_of(row[2]).job_id
  local status = id and redis.pcall('HGET', job_key(id), 'status')
  if type(status) ~= 'string' or terminal[status] then
    if not holder_of(row[1]) then removed = removed + redis.call('XDEL', queue, row[1]) end
  end
  last = '(' .. row[1]
end
if #rows < look then last = '-' end

if cursor == '-' then
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', queue, 'workers')) do
    local one = fields_of(row)
    if one.name ~= consumer and string.sub(one.name, 1, #ours) == ours and one.pending == 0
      and one.idle >= silent_ms and redis.call('EXISTS', worker_key(one.name)) == 0 then
      redis.call('XGROUP', 'DELCONSUMER', queue, 'workers', one.name)
      removed = removed + 1
    end
  end
end
return {last, removed}
