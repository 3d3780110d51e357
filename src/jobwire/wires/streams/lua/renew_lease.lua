#!lua flags=allow-oom
-- renew_lease: renew the leases of jobs that this worker still holds.
--
-- Looks first and renews then: XCLAIM without the look would steal an entry back
-- from a worker that has taken it over.
--
-- Also touches, below the queue's prefix: job:<id>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer   the worker; then for each lease: job id, entry, token
--   ...
-- RETURNS
--   kept     the lease runs anew
--   cancel   the same, and somebody asked for the job to stop
--   lost     the job belongs to another; nothing was done
--   ended    the job has ended, or is gone
-- CLAUSES J-9 J-32 J-33
-- INCLUDE keys fence
local consumer = ARGV[1]
local answers, kept = {}, {}

for at = 2, #ARGV, 3 do
  local id, entry, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local row = redis.pcall('HMGET', job_key(id), 'status', 'owner', 'cancel_ts')
  local status = not row.err and row[1]
  if row.err and string.sub(row.err, 1, 9) ~= 'WRONGTYPE' then
    -- It may not even be read: nothing is known of it. Not renewed, and not lost.
    answers[#answers + 1] = 'kept'
  elseif not status or status == 'done' or status == 'error' or status == 'canceled' then
    answers[#answers + 1] = 'ended'
  elseif holds(consumer, token, entry, status, row[2]) then
    kept[#kept + 1] = entry
    answers[#answers + 1] = row[3] and 'cancel' or 'kept'
  else
    answers[#answers + 1] = 'lost'
  end
end
if #kept > 0 then
  kept[#kept + 1] = 'JUSTID'
  redis.call('XCLAIM', queue, 'workers', consumer, 0, unpack(kept))
end
return answers
