#!lua flags=allow-oom
-- purge: cancel the jobs of a queue that wait or are delayed, and its suspended jobs if asked.
--
-- Each one ends with its terminal event, as if it were canceled alone. Jobs that a worker has
-- read go on, and so do jobs that were created after the purge began. A bounded piece per call:
-- first, if asked, the suspended jobs of all queues, then the delayed ones, of which those of this queue
-- are canceled, then the queue: a job that becomes due meanwhile moves from the first two to the last.
-- Unless suspended jobs are asked for, one that is woken meanwhile goes on: most often by the purge itself,
-- which ends its children.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, idempotency:<name>,
-- jobs:delayed, jobs:suspended, jobs:open, jobs:queues, jobs:stats:<minute>, jobs:bytes:<tenant>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, name, owner, canceled_ttl_s, began_ms, place, cursor, scan_limit
-- RETURNS
--   began_ms   when the purge began; empty if there is no such queue
--   place      where the next call begins: `suspended`, `delayed`, `queue`, or `end` after the last job;
--              with ` all` behind it if suspended jobs were asked for
--   cursor     and its position there
--   canceled   how many jobs were canceled
-- CLAUSES J-9 J-53 J-57 D-10
-- INCLUDE keys job state bytes fence entry awaits waiting
local name, owner, canceled_ttl_s = ARGV[3], ARGV[4], ARGV[5]
local began_ms, place, cursor, scan_limit = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
local canceled = 0
local is_all = place == 'suspended' or string.sub(place, -4) == ' all'
place = string.gsub(place, ' all$', '')

if name ~= 'default' and redis.call('SISMEMBER', queues_key, name) == 0 then
  return {'', 'end', '', 0}
end
select_queue(name)
if began_ms == '' then began_ms = now end

-- Whether the job of a tenant that the caller may not change. An empty owner is any tenant.
local function is_foreign(job)
  return owner ~= '' and (job.tenant and job.tenant ~= '' and job.tenant or 'default') ~= owner
end

local function purge(id, entry)
  local job = id and try_read_job(id, 'entry_id', 'attempt', 'tenant', 'queue', 'created_ts', 'started_ts',
    'updated_ts')
  if not job or job.err or job.status ~= 'queued' or is_foreign(job) then return end
  local created_ms, updated_ms = tonumber(job.created_ts) or 0, tonumber(job.updated_ts) or 0
  if created_ms > tonumber(began_ms) then return end
  if not is_all and updated_ms >= tonumber(began_ms) and updated_ms > created_ms then return end
  if entry then
    if job.entry_id and job.entry_id ~= '' and job.entry_id ~= entry then return end
  elseif (job.queue or 'default') ~= name then
    return
  end
  cancel_waiting(job, canceled_ttl_s, 'gateway.purge')
  clear_owner(id)
  if entry then clear(entry) end
  canceled = canceled + 1
end

if place ~= 'queue' then
  local key = place == 'suspended' and suspended_key or delayed_key
  local found = redis.call('ZSCAN', key, cursor, 'COUNT', scan_limit)
  for at = 1, #found[2], 2 do isolated(purge, found[2][at]) end
  cursor = found[1]
  if cursor == '0' then place = place == 'suspended' and 'delayed' or 'queue' end
else
  -- Entries up to the last delivered one are with workers, or have been.
  local delivered = '0-0'
  local groups = redis.pcall('XINFO', 'GROUPS', queue)
  for _, row in ipairs(groups.err and {} or groups) do
    local group = fields_of(row)
    if group.name == 'workers' then delivered = group['last-delivered-id'] end
  end
  if cursor == '0' or is_later(delivered, cursor) then cursor = delivered end
  local rows = redis.pcall('XRANGE', queue, '(' .. cursor, '+', 'COUNT', scan_limit)
  if rows.err then rows = {} end
  for _, row in ipairs(rows) do
    isolated(purge, fields_of(row[2]).job_id, row[1])
    cursor = row[1]
  end
  if #rows < scan_limit then place = 'end' end
end
flush()
if is_all and place ~= 'end' and place ~= 'suspended' then place = place .. ' all' end
return {began_ms, place, cursor, canceled}
