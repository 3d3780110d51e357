#!lua flags=allow-oom
-- extend_ttl: renew the keys of unfinished jobs at half of their life.
--
-- A lifetime counts from the last change, and a job may wait longer than that. The
-- hash, its events and its idempotency key are renewed together. At half of their life:
-- an outage or a jump of the clock that is shorter than the other half loses nothing.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:open, jobs:guard:extend_ttl, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, ahead_ms, look, period_ms
-- RETURNS
--   kept   how many were renewed
--   more   1 if there may be others whose half has passed
-- CLAUSES J-7 J-9 J-11 J-41
-- INCLUDE keys state guard
local consumer, ahead_ms, look, period_ms = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local kept = 0

if someone_did('extend_ttl', period_ms, consumer) then return {'guarded'} end

local due = redis.call('ZRANGEBYSCORE', open_key, '-inf', now_ms + ahead_ms,
  'WITHSCORES', 'LIMIT', 0, look)
local renewals = {}

local function renew(id)
  local row = fields(id, 'status', 'ttl_s', 'idempotency_key')
  if not row[1] then
    closed[#closed + 1] = id
  elseif terminal[row[1]] then
    -- Our own scripts remove a job from jobs:open when it ends: a foreign worker ended this one.
    count(row[1])
    closed[#closed + 1] = id
  else
    local expiry = expiry_of(row[2])
    extend_ttl(id, expiry, row[3])
    renewals[#renewals + 1] = renewal_of(expiry)
    renewals[#renewals + 1] = id
    kept = kept + 1
  end
end

for at = 1, #due, 2 do
  if apart(renew, due[at]) == 'refused' then
    -- Tried again later; it must not stand before the others for ever.
    renewals[#renewals + 1] = renewal_of(expiry_of())
    renewals[#renewals + 1] = due[at]
  end
end
if #renewals > 0 then redis.call('ZADD', open_key, unpack(renewals)) end
tidy()
local is_full = #due == 2 * look
return {kept, is_full and tonumber(due[#due]) <= now_ms and 1 or 0}
