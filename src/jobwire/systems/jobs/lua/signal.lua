#!lua
-- signal: record a signal of an unfinished job, and queue the job if it lacks nothing else.
--
-- A signal has one value: the first counts. One that comes before its job waits for it is kept. A full
-- server refuses it.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, job:<id>:awaits,
-- idempotency:<name>, jobs:suspended, jobs:open, jobs:queues, jobs:bytes:<tenant>,
-- jobs:guard:bytes:<tenant>, the queue of the job
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, job_id, name, value, max_signals, max_bytes
--   tenant_max_bytes   how many bytes the jobs of a tenant may have; 0: any number
-- RETURNS
--   recorded   it is the value of this signal now
--   same       it has been since an earlier call
--   other      the signal has another value
--   late       the job has waited for it in vain
--   full       the job has too many signals, or too many bytes of them, or the jobs of its tenant have
--   finished   the job has ended
--   gone       there is no such job
-- CLAUSES J-9 J-57 D-6 D-12
-- INCLUDE keys job state bytes awaits
local id, field, value = ARGV[3], 'g:' .. ARGV[4], ARGV[5]
local max_signals, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

local job = try_read_job(id, 'outside_bytes', 'tenant')
if job.err or not job.status then return 'gone' end
if terminal[job.status] then return 'finished' end

local known = redis.call('HGET', steps_key(id), field)
if known then
  local found = string.match(known, '^%[%d+,(.*)%]$')
  if not found then return 'late' end
  return found == value and 'same' or 'other'
end
local signals = 0
for _, name in ipairs(redis.call('HKEYS', steps_key(id))) do
  if string.sub(name, 1, 2) == 'g:' then signals = signals + 1 end
end
if signals >= max_signals or (tonumber(job.outside_bytes) or 0) + #value > max_bytes then return 'full' end
-- J-57: a signal is a caller's bytes, as a payload is.
if bytes().exceeds(job.tenant or '', #value, tonumber(ARGV[8])) then return 'full' end
awaits().record_outside(id, field, '[' .. now .. ',' .. value .. ']', 'gateway.signal')
flush()
return 'recorded'
