#!lua flags=allow-oom
-- extend_ttl: extend the keys of unfinished jobs at half of their lifetime.
--
-- A lifetime counts from the last change, and a job may wait longer than that. The
-- hash, its events and its idempotency key are extended together. An outage or a jump of
-- the clock that is shorter than the other half of the lifetime loses nothing.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, job:<id>:awaits,
-- idempotency:<name>, jobs:open, jobs:suspended, jobs:guard:extend_ttl, jobs:stats:<minute>, jobs:bytes:<tenant>;
-- for the job that follows a failed one jobs:tasks, jobs:queues, jobs:index[:<tenant>], jobs:tenants
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, ahead_ms, scan_limit, period_ms
-- RETURNS
--   extended   how many jobs were extended
--   more       1 if there may be others that are due
-- CLAUSES J-7 J-9 J-11 J-41 J-57 D-13 D-15 D-23
-- INCLUDE keys job state bytes failures awaits guard
local consumer, ahead_ms = ARGV[3], tonumber(ARGV[4])
local scan_limit, period_ms = tonumber(ARGV[5]), ARGV[6]
local extended = 0

local guarded_ms = already_done('extend_ttl', period_ms, consumer)
if guarded_ms then return {'guarded', guarded_ms} end

local due = redis.call('ZRANGEBYSCORE', open_key, '-inf', now_ms + ahead_ms,
  'WITHSCORES', 'LIMIT', 0, scan_limit)
local renewals = {}

local function extend(id)
  local job = read_job(id)
  local status = job.status
  if not status then
    closed[#closed + 1] = id
    awaits().forget(id)
  elseif terminal[status] then
    -- Our scripts remove a job from jobs:open when it ends: a foreign worker ended this one.
    count(status)
    if status == 'error' then on_error(id) end
    record_end(id)
    closed[#closed + 1] = id
    awaits().forget(id)
  else
    -- D-13: a suspended job is kept until it is due, and its lifetime or seven days longer.
    local due_ms = tonumber(redis.call('ZSCORE', suspended_key, id))
    local expiry = expiry_of(job.ttl_s)
    if due_ms and due_ms < 9007199254740992 then
      expiry = awaits().suspended_expiry(job.ttl_s, due_ms)
      redis.call('PEXPIREAT', awaits_key(id), expiry)
    end
    awaits().extend_children(id, expiry)
    bytes().move(id, expiry)
    extend_ttl(id, expiry, job.idempotency_key)
    renewals[#renewals + 1] = renewal_of(expiry)
    renewals[#renewals + 1] = id
    extended = extended + 1
  end
end

for at = 1, #due, 2 do
  if isolated(extend, due[at]) == 'refused' then
    -- Retried later, so that it does not block the others.
    renewals[#renewals + 1] = renewal_of(expiry_of())
    renewals[#renewals + 1] = due[at]
  end
end
if #renewals > 0 then redis.call('ZADD', open_key, unpack(renewals)) end
flush()
local is_full = #due == 2 * scan_limit
return {extended, is_full and tonumber(due[#due]) <= now_ms and 1 or 0}
