#!lua flags=allow-oom
-- reconcile: give a new entry to open jobs that have no queue entry.
--
-- A foreign MAXLEN or early XACK, a failover or a lost tail of the log can leave a job
-- that no worker will ever read. In normal operation there is none.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, job:<id>:awaits,
-- idempotency:<name>, jobs:open, jobs:delayed, jobs:suspended, jobs:guard:reconcile, jobs:stats:<minute>,
-- jobs:failures:<hour>[:<tenant>], jobs:index[:<tenant>], jobs:tenants, jobs:tasks, jobs:queues,
-- jobs:bytes:<tenant>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, lease_ms, foreign_ms, max_deliveries
--   cursor, scan_limit, period_ms
-- RETURNS
--   cursor   where the next call begins; `0` after the last job
--   moved    how many jobs were requeued or ended
-- CLAUSES J-9 J-41 J-42 D-10 D-15 D-23
-- INCLUDE keys job state bytes failures fence entry awaits requeue guard
local consumer, lease_ms, foreign_ms = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local max_deliveries, cursor, scan_limit = tonumber(ARGV[6]), ARGV[7], ARGV[8]
local period_ms = ARGV[9]
local moved = 0

-- D-10: every open job is looked at, and most may be suspended: at most 500 of them a second on average,
-- and all of them within ten minutes.
if period_ms ~= '0' then
  local suspended = redis.pcall('ZCARD', suspended_key)
  if type(suspended) == 'number' then
    period_ms = string.format('%.0f', math.max(tonumber(period_ms), math.min(2 * suspended, 600000)))
  end
end

local guarded_ms = already_done('reconcile', period_ms, consumer)
if guarded_ms then return {'guarded', guarded_ms} end

local last_delivered = {}
local function delivered()
  if not last_delivered[queue] then
    last_delivered[queue] = '0-0'
    local groups = redis.pcall('XINFO', 'GROUPS', queue)
    for _, row in ipairs(groups.err and {} or groups) do
      local group = fields_of(row)
      if group.name == 'workers' then last_delivered[queue] = group['last-delivered-id'] end
    end
  end
  return last_delivered[queue]
end

local function has_place(id, entry)
  if redis.call('ZSCORE', delayed_key, id) then return true end
  if not entry or entry == '' then return false end
  if not redis.call('XRANGE', queue, entry, entry)[1] then return false end
  return is_later(entry, delivered()) or holder_of(entry) ~= nil
end

local function reconcile(id)
  local job = try_read_job(id, 'entry_id', 'updated_ts', 'timeout_s', 'attempt', 'deliveries',
    'excused_deliveries', 'cancel_ts', 'task', 'payload', 'queue')
  select_queue(job.queue)
  local status, entry = job.status, job.entry_id
  if job.err or not status or terminal[status] then
    -- Our scripts remove a job from jobs:open when it ends: a foreign worker ended this one.
    if terminal[status] then
      count(status)
      record_end(id)
    end
    if status == 'error' then on_error(id) end
    closed[#closed + 1] = id
    awaits().forget(id)
    return
  end
  -- A foreign worker renews nothing, and may have acknowledged the entry before it began.
  local idle_limit_ms, idle_ms = lease_ms, now_ms - (tonumber(job.updated_ts) or 0)
  if status == 'running' and (not job.owner or job.owner == '') then
    idle_limit_ms = math.max(foreign_ms, (tonumber(job.timeout_s) or 0) * 1000)
    idle_ms = inactive_ms(id, idle_ms, idle_limit_ms)
  end
  if idle_ms <= idle_limit_ms or has_place(id, entry) then return end
  local expiry = expiry_of(job.ttl_s)
  if redis.call('ZSCORE', suspended_key, id) then bytes().move(id, expiry) end
  if job.cancel_ts then
    finish_canceled(id, expiry, job.attempt, 'duty.sweep')
    clear_owner(id)
  elseif is_exhausted((tonumber(job.deliveries) or 0) - (tonumber(job.excused_deliveries) or 0),
    job.attempt, max_deliveries) then
    end_exhausted(id, expiry, job.attempt)
  else
    requeue(id, expiry, status, job.task, job.payload)
  end
  -- The lifetime of a suspended job was longer: it is extended at half of its own again.
  if redis.call('ZREM', suspended_key, id) == 1 then
    redis.call('ZADD', open_key, renewal_of(expiry), id)
    redis.call('HDEL', job_key(id), 'waits_for')
    redis.call('DEL', awaits_key(id))
    redis.call('PEXPIREAT', steps_key(id), expiry)
  end
  -- The old entry, if it still exists, does not count any more.
  if entry and entry ~= '' then clear(entry) end
  count('reconciled')
  moved = moved + 1
end

-- D-10: a suspended job has its place, and most open jobs may be suspended: one command for the page
-- instead of several a job. One that was due longer than a lease ago should have been woken.
local function reconcile_page(rows)
  local ids = {}
  for at = 1, #rows, 2 do ids[#ids + 1] = rows[at] end
  local due = #ids > 0 and redis.pcall('ZMSCORE', suspended_key, unpack(ids)) or {}
  for at, id in ipairs(ids) do
    local due_ms = not due.err and due[at] and tonumber(due[at])
    -- A job that the server refuses to queue does not keep the others.
    if not due_ms or due_ms < now_ms - lease_ms then isolated(reconcile, id) end
  end
end

local found = redis.call('ZSCAN', open_key, cursor, 'COUNT', scan_limit)
reconcile_page(found[2])
flush()
return {found[1], moved}
