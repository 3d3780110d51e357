#!lua flags=allow-oom
-- retry: end an attempt that failed and put the job back in line at once.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, token, lifo
--   ...   fields of the hash to set, name and value
-- RETURNS
--   ok            the job waits again
--   missing       there is no such job
--   no_lock       the lock has expired; nothing was written
--   foreign_lock  another worker has the lock; nothing was written
--   not_active    the job is not active
-- CLAUSES B-5 B-10 B-16
-- INCLUDE queue events enqueue lock fetch memory
local id, lifo, fields = ARGV[3], ARGV[5] == '1', { unpack(ARGV, 6) }
promote_due(queue)
local left = leave_active(queue, id, ARGV[4], fields, function()
  push(queue, id, priority_of(queue, id), lifo)
end)
if left ~= 'ok' then return refused_verb(queue, id, ARGV[4], 'retry', left) end
remember_verb(queue, id, ARGV[4], 'retry')
count(queue .. id, 'atm')
emit_waiting(queue, true, id, 'active')
if extras then emit_trimmed(queue, 'retry', 'jobId', id, 'delay', '0') end
return { 'ok' }
