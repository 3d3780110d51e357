#!lua flags=allow-oom
-- reconcile: give a new entry to open jobs that have fallen out of the line.
--
-- A stranger's MAXLEN or early XACK, a failover or a lost tail of the log can leave
-- a job that nobody will ever read. In a healthy run there is none.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:open, jobs:delayed, jobs:guard:reconcile, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, lease_ms, foreign_ms, max_deliveries
--   cursor, look, period_ms
-- RETURNS
--   cursor   where to go on; `0` after the last one
--   moved    how many were put right
-- CLAUSES J-9 J-41 J-42
-- INCLUDE keys state fence entry requeue guard
local consumer, lease_ms, foreign_ms = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local max_deliveries, cursor, look, period_ms = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local moved = 0

if someone_did('reconcile', period_ms, consumer) then return {'guarded'} end

local delivered = '0-0'
local groups = redis.pcall('XINFO', 'GROUPS', queue)
for _, row in ipairs(groups.err and {} or groups) do
  local group = fields_of(row)
  if group.name == 'workers' then delivered = group['last-delivered-id'] end
end

local function in_line(id, entry)
  if redis.call('ZSCORE', delayed_key, id) then return true end
  if not entry or entry == '' then return false end
  if not redis.call('XRANGE', queue, entry, entry)[1] then return false end
  return later(entry, delivered) or holder_of(entry) ~= nil
end

local function look_at(id)
  local row = redis.pcall('HMGET', job_key(id), 'status', 'entry_id', 'updated_ts', 'owner',
    'timeout_s', 'ttl_s', 'attempt', 'deliveries', 'cancel_ts', 'task', 'payload')
  if row.err or not row[1] or terminal[row[1]] then
    -- Our own scripts remove a job from jobs:open when it ends: a foreign worker ended this one.
    if terminal[row[1]] then count(row[1]) end
    closed[#closed + 1] = id
    return
  end
  -- A stranger renews nothing while it works, and may have acked before it began.
  local patience_ms, quiet_ms = lease_ms, now_ms - (tonumber(row[3]) or 0)
  if row[1] == 'running' and (not row[4] or row[4] == '') then
    patience_ms = math.max(foreign_ms, (tonumber(row[5]) or 0) * 1000)
    quiet_ms = silent_ms(id, quiet_ms, patience_ms)
  end
  if quiet_ms <= patience_ms or in_line(id, row[2]) then return end
  local expiry = expiry_of(row[6])
  if row[9] then
    finish_canceled(id, expiry, row[7], 'duty.sweep')
    disown(id)
  elseif used_up(row[8], row[7], max_deliveries) then
    end_used_up(id, expiry, row[7])
  else
    back_in_line(id, expiry, row[1], row[10], row[11])
  end
  -- What is left of the old entry, if anything, counts no more.
  if row[2] and row[2] ~= '' then clear(row[2]) end
  count('reconciled')
  moved = moved + 1
end

local found = redis.call('ZSCAN', open_key, cursor, 'COUNT', look)
for at = 1, #found[2], 2 do look_at(found[2][at]) end
tidy()
return {found[1], moved}
