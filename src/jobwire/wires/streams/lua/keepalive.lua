#!lua flags=allow-oom
-- keepalive: keep unfinished jobs from expiring.
--
-- A lifetime counts from the last change, and a job may wait longer than that. The
-- hash, its events and its idempotency key live on together, or none of them.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:open, jobs:guard:keepalive
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, ahead_ms, look, period_ms
-- RETURNS
--   kept   how many live on
--   more   1 if there may be more of them
-- CLAUSES J-7 J-9 J-41
-- INCLUDE keys life guard
local consumer, ahead_ms, look, period_ms = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local kept = 0

if someone_did('keepalive', period_ms, consumer) then return {'guarded'} end

local due = redis.call('ZRANGEBYSCORE', open_key, '-inf', now_ms + ahead_ms, 'LIMIT', 0, look)
for _, id in ipairs(due) do
  local row = redis.pcall('HMGET', job_key(id), 'status', 'ttl_s', 'idempotency_key')
  if row.err or not row[1] or terminal[row[1]] then
    redis.call('ZREM', open_key, id)
  else
    local expiry = expiry_of(row[2])
    redis.call('PEXPIREAT', job_key(id), expiry)
    redis.call('PEXPIREAT', events_key(id), expiry)
    if row[3] then redis.call('PEXPIREAT', idempotency_key(row[3]), expiry) end
    redis.call('ZADD', open_key, expiry, id)
    kept = kept + 1
  end
end
return {kept, #due == look and 1 or 0}
