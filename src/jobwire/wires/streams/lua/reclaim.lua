#!lua flags=allow-oom
-- reclaim: take jobs away from workers that are silent for too long.
--
-- With room for them (a limit), their entries are claimed and started here, as take
-- does. Without, they go back in line, for anybody's workers. Which entries are
-- ripe differs by who holds them, hence XCLAIM of chosen ones: XAUTOCLAIM would
-- also take those of strangers that are well and working. Nothing is taken right after
-- an outage of the server or a reconnect of the caller, and a delivery that was lost
-- over an outage is not counted.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:open, jobs:index[:<tenant>], jobs:tenants,
-- jobs:guard:reclaim, jobs:guard:outage, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, limit, token, ours, lease_ms, foreign_ms, late_ms
--   max_deliveries, cursor, look, reconnected, period_ms
-- RETURNS
--   cursor    where to go on; `-` after the last one
--   started   as take answers it
--   dropped   as take answers it
--   moved     how many went back in line or were ended
-- CLAUSES J-5 J-9 J-34 J-41
-- INCLUDE keys state fence entry start requeue guard outage
local consumer, limit, token, ours = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local lease_ms, foreign_ms, late_ms = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local max_deliveries, cursor, look = tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12])
local reconnected, period_ms = ARGV[13] == '1', ARGV[14]
local moved = 0

local must_wait = recovering(lease_ms, reconnected)
if someone_did('reclaim', period_ms, consumer) then return {'guarded'} end
if must_wait then return {'-', started, dropped, moved} end

local function expired(id, holder, idle_ms)
  if string.sub(holder, 1, #ours) == ours then return idle_ms >= lease_ms + late_ms end
  local timeout_s = id and redis.pcall('HGET', job_key(id), 'timeout_s')
  local patience_ms = math.max(foreign_ms, (tonumber(timeout_s) or 0) * 1000) + late_ms
  return idle_ms >= patience_ms and silent_ms(id, idle_ms, patience_ms) >= patience_ms
end

local function sweep(entry, id, found, holder, idle_ms)
  if not expired(id, holder, idle_ms) then return end
  local row = runnable(entry, id)
  if not row then return end
  if row[1] == 'running' and row[7] > 0 and now_ms - idle_ms <= outage_ended_ms then
    row[7] = row[7] - 1
    redis.call('HSET', job_key(id), 'deliveries', row[7])
    -- Reports are numbered within a delivery, and this number comes again.
    redis.call('HDEL', job_key(id), 'reports')
  end
  if used_up(row[7], row[6], max_deliveries) then
    end_used_up(id, row[2], row[6])
    clear(entry)
    moved = moved + 1
  elseif #started < limit then
    redis.call('XCLAIM', queue, 'workers', consumer, 0, entry, 'JUSTID')
    start(entry, id, found.task, found.payload, row, token, consumer)
    count('reclaimed')
  elseif limit == 0 then
    back_in_line(id, row[2], row[1], found.task, found.payload)
    clear(entry)
    count('reclaimed')
    moved = moved + 1
  end
end

local list = redis.pcall('XPENDING', queue, 'workers', 'IDLE', lease_ms + late_ms, cursor, '+', look)
if list.err then list = {} end
local last = '-'
for _, row in ipairs(list) do
  if limit > 0 and #started >= limit then break end
  -- Our own entries are ours to settle, however late; what we have forgotten, adopt finds.
  if row[2] ~= consumer then
    local rows = redis.call('XRANGE', queue, row[1], row[1])
    if rows[1] then
      local found = fields_of(rows[1][2])
      attend(sweep, row[1], found.job_id, found, row[2], row[3])
    else
      -- Deleted under its worker: no claim can bring it back. Reconcile looks after the job.
      clear(row[1])
    end
  end
  last = '(' .. row[1]
end
if #list < look then last = '-' end
tidy()
return {last, started, dropped, moved}
