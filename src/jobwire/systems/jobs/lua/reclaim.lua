#!lua flags=allow-oom
-- reclaim: take jobs away from workers whose leases have expired.
--
-- With a limit, up to that many entries are claimed and started here, as take does.
-- Without, the jobs are requeued for any worker. Leases differ by the kind of worker,
-- hence XCLAIM of chosen entries: XAUTOCLAIM would also take those of foreign workers that
-- are active. Nothing is taken right after an outage of the server or a reconnect of the
-- caller, and a delivery that was lost over an outage does not count towards the limit.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps,
-- idempotency:<name>, jobs:open, jobs:index[:<tenant>], jobs:tenants, jobs:tasks, jobs:queues,
-- jobs:guard:reclaim, jobs:guard:outage, jobs:stats:<minute>,
-- jobs:failures:<hour>[:<tenant>], jobs:bytes:<tenant>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, limit, token, ours, lease_ms, foreign_ms, late_ms
--   max_deliveries, scan_limit, reconnected, period_ms, scope
--   ...   queues and their cursors (each_queue)
-- RETURNS
--   cursors   queues, and where the next call begins; `-` after the last entry
--   started   as take answers it
--   dropped   as take answers it
--   moved     how many jobs were requeued or ended
-- CLAUSES J-5 J-9 J-34 J-41 D-23
-- INCLUDE keys queues job state bytes failures fence entry awaits start requeue guard outage
local consumer, limit, token, ours = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local lease_ms, foreign_ms, late_ms = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local max_deliveries, scan_limit = tonumber(ARGV[10]), tonumber(ARGV[11])
local reconnected, period_ms, scope = ARGV[12] == '1', ARGV[13], ARGV[14]
local moved = 0

-- Noted by every call, also where another process has done the task.
local must_wait = is_recovering(lease_ms, reconnected)
local guarded_ms = already_done('reclaim', period_ms, consumer)
if guarded_ms then return {'guarded', guarded_ms} end
if must_wait then return {{}, started, dropped, moved} end

-- `XNACK` of Redis 8.8 leaves entries without a consumer, and without an idle time to find them by.
local function is_free(holder) return not holder or holder == '' end

local function has_free_entries()
  local summary = redis.pcall('XPENDING', queue, 'workers')
  if summary.err then return false end
  local held = 0
  for _, row in ipairs(summary[4] or {}) do
    if not is_free(row[1]) then held = held + tonumber(row[2]) end
  end
  return held < summary[1]
end

local function is_expired(id, holder, idle_ms)
  if is_free(holder) then return true end
  if string.sub(holder, 1, #ours) == ours then return idle_ms >= lease_ms + late_ms end
  local timeout_s = id and redis.pcall('HGET', job_key(id), 'timeout_s')
  local idle_limit_ms = math.max(foreign_ms, (tonumber(timeout_s) or 0) * 1000) + late_ms
  return idle_ms >= idle_limit_ms and inactive_ms(id, idle_ms, idle_limit_ms) >= idle_limit_ms
end

local function reclaim(entry, id, found, holder, idle_ms)
  if not is_expired(id, holder, idle_ms) then return end
  local job = read_runnable(entry, id)
  if not job then return end
  -- `deliveries` counts every start, since a handler may rely on it. Starts that were lost over an
  -- outage do not count towards the limit of deliveries.
  local excused = tonumber(redis.call('HGET', job_key(id), 'excused_deliveries')) or 0
  if job.status == 'running' and now_ms - idle_ms <= outage_ended_ms then
    excused = excused + 1
    redis.call('HSET', job_key(id), 'excused_deliveries', excused)
  end
  if is_exhausted(job.deliveries - excused, job.attempt, max_deliveries) then
    end_exhausted(id, job.expiry, job.attempt)
    clear(entry)
    moved = moved + 1
  elseif #started < limit and not is_paused() then
    redis.call('XCLAIM', queue, 'workers', consumer, 0, entry, 'JUSTID')
    start(entry, job, found.task, found.payload, token, consumer)
    count('reclaimed')
  elseif limit == 0 or is_paused() then
    requeue(id, job.expiry, job.status, found.task, found.payload)
    clear(entry)
    count('reclaimed')
    moved = moved + 1
  end
end

local function reclaim_queue(cursor, queue_limit)
  local least_ms = lease_ms + late_ms
  local pending = has_free_entries()
    and redis.pcall('XPENDING', queue, 'workers', cursor, '+', queue_limit)
    or redis.pcall('XPENDING', queue, 'workers', 'IDLE', least_ms, cursor, '+', queue_limit)
  if pending.err then return '-' end
  local last = '-'
  for _, row in ipairs(pending) do
    local entry, holder, idle_ms = row[1], row[2], row[3]
    if limit > 0 and #started >= limit then break end
    -- This worker settles its own entries, however late; recover_orphans finds those it does not know.
    if holder ~= consumer and (is_free(holder) or idle_ms >= least_ms) then
      local rows = redis.call('XRANGE', queue, entry, entry)
      if rows[1] then
        local found = fields_of(rows[1][2])
        try_start(reclaim, entry, found.job_id, found, holder, idle_ms)
      else
        -- The entry was deleted while pending and cannot be claimed; reconcile finds the job.
        clear(entry)
      end
    end
    last = '(' .. entry
  end
  return #pending < queue_limit and '-' or last
end

local cursors = each_queue(15, scope, scan_limit, reclaim_queue)
flush()
return {cursors, started, dropped, moved}
