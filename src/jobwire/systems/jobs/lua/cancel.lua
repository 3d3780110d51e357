#!lua flags=allow-oom
-- cancel: end a waiting job, or ask the worker of a running job to stop it.
--
-- State, terminal event and removal from the queue are one step, so a job that was
-- answered "canceled" can no longer be taken. A job whose entry a foreign worker has
-- read belongs to that worker, also before its status is running.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, idempotency:<name>,
-- jobs:delayed, jobs:suspended, jobs:open, jobs:stats:<minute>, jobs:bytes:<tenant>, channel jobs:control
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, job_id, ours, canceled_ttl_s, publish
-- RETURNS
--   canceled            it was waiting and has ended now
--   requested           a worker of ours runs it and was asked to stop it
--   requested_foreign   a foreign worker runs it, and may not read the request
--   finished            it had ended before
--   gone                there is no such job
-- CLAUSES J-5 J-9 J-16 J-57
-- INCLUDE keys job state bytes fence awaits waiting
local job_id, ours, canceled_ttl_s, publish = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local job = try_read_job(job_id, 'entry_id', 'attempt', 'queue', 'started_ts')
local status, entry, owner = job.status, job.entry_id, job.owner
if job.err or not status then return 'gone' end
if terminal[status] then return 'finished' end

select_queue(job.queue)
local expiry = expiry_of(job.ttl_s)
local holder = holder_of(entry)
local foreign = holder and string.sub(holder, 1, #ours) ~= ours
if status == 'running' and not holder and (not owner or owner == '') then foreign = true end

if status == 'queued' and not foreign then
  cancel_waiting(job, canceled_ttl_s, 'gateway.cancel')
  if entry then clear(entry) end
  flush()
  return 'canceled'
end
redis.call('HSETNX', job_key(job_id), 'cancel_ts', now)
update(job_id, expiry)
extend_key_of(job_id, expiry)
if foreign then return 'requested_foreign' end
if owner then redis.call(publish, control, owner) end
return 'requested'
