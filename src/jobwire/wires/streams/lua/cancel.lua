#!lua flags=allow-oom
-- cancel: end a waiting job, or ask the worker of a running one to stop.
--
-- State, terminal event and the removal from the line are one step, so a job that
-- was answered "canceled" can no longer be taken. A job that a stranger's worker
-- has read, though it may not have said so yet, is the stranger's.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>,
-- jobs:delayed, jobs:open, jobs:stats:<minute>, channel jobs:control
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, job_id, ours, canceled_ttl_s
-- RETURNS
--   canceled        it was waiting and has ended now
--   asked           it is running with us: its worker was told
--   asked_foreign   it is running elsewhere; nobody there may listen
--   finished        it had ended before
--   gone            there is no such job
-- CLAUSES J-5 J-9 J-16 J-57
-- INCLUDE keys state fence
local job_id, ours = ARGV[3], ARGV[4]

local row = redis.pcall('HMGET', job_key(job_id),
  'status', 'entry_id', 'owner', 'ttl_s', 'attempt', 'idempotency_key')
if row.err or not row[1] then return 'gone' end
local status, entry, owner, expiry = row[1], row[2], row[3], expiry_of(row[4])
if terminal[status] then return 'finished' end

local holder = holder_of(entry)
local foreign = holder and string.sub(holder, 1, #ours) ~= ours
if status == 'running' and not holder and (not owner or owner == '') then foreign = true end

if status == 'queued' and not foreign then
  -- J-57: submit, cancel, repeat must not fill the server.
  local soon = string.format('%.0f', now_ms + ARGV[5] * 1000)
  if tonumber(soon) < tonumber(expiry) then expiry = soon end
  if row[6] then redis.call('PEXPIREAT', idempotency_key(row[6]), expiry) end
  finish_canceled(job_id, expiry, row[5], 'gateway.cancel')
  if entry then clear(entry) end
  redis.call('ZREM', delayed_key, job_id)
  tidy()
  return 'canceled'
end
redis.call('HSETNX', job_key(job_id), 'cancel_ts', now)
update(job_id, expiry)
extend_key_of(job_id, expiry)
if foreign then return 'asked_foreign' end
if owner then redis.call('PUBLISH', control, owner) end
return 'asked'
