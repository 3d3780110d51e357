#!lua flags=allow-oom
-- index_foreign: index jobs that foreign gateways have queued.
--
-- From then on lists show them, their keys are extended while they are unfinished, and
-- reconcile finds them. Jobs of our gateways have the field entry_id from the beginning.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, jobs:open,
-- jobs:delayed, jobs:suspended, jobs:index[:<tenant>], jobs:tenants, jobs:guard:index_foreign, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, scan_limit, period_ms
--   ...   queues and their cursors (each_queue)
-- RETURNS
--   cursors  queues, and the entry after which the next call begins
--   found    how many jobs were indexed
--   more     1 if there may be more of them
-- CLAUSES J-9 J-39 J-41
-- INCLUDE keys queues job state bytes fence entry awaits start guard
local consumer, scan_limit, period_ms = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local found, more = 0, 0

local guarded_ms = already_done('index_foreign', period_ms, consumer)
if guarded_ms then return {'guarded', guarded_ms} end

local function index_queue(cursor, queue_limit)
  -- The stream of an emptied server begins anew, and with smaller ids if its clock was set back.
  if cursor ~= '-' then
    local last = redis.call('XREVRANGE', queue, '+', '-', 'COUNT', 1)[1]
    if last and is_later(string.sub(cursor, 2), last[1]) then cursor = '-' end
  end
  local rows = redis.call('XRANGE', queue, cursor, '+', 'COUNT', queue_limit)
  for _, row in ipairs(rows) do
    local entry, id = row[1], fields_of(row[2]).job_id
    local job = id and try_read_job(id, 'entry_id', 'created_ts', 'tenant')
    if not job or not job.status or job.entry_id then
      -- No job, or one of ours.
    elseif terminal[job.status] then
      -- A foreign worker has ended it already.
      if index(id, job.created_ts, job.tenant) then count(job.status) end
    elseif not redis.call('ZSCORE', delayed_key, id)
      and not redis.call('ZSCORE', suspended_key, id) then
      index_open(entry, id, expiry_of(job.ttl_s), job.created_ts, job.tenant)
      found = found + 1
    end
    cursor = '(' .. entry
  end
  if #rows == queue_limit then more = 1 end
  return cursor
end

local cursors = each_queue(6, 'known', scan_limit, index_queue)
flush()
return {cursors, found, more}
