-- report: write what the handler of a running job reports, while its worker has the lock.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, token, kind, value, message, keep
-- RETURNS
--   written  the hash, the log or the events have it
--   lost     the lock is gone or another's; nothing was written
-- CLAUSES B-7 B-14 B-16
-- INCLUDE queue events progress
local id, token, kind, value, message, keep =
  ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
if redis.call('GET', queue .. id .. ':lock') ~= token or redis.call('EXISTS', queue .. id) == 0 then
  return 'lost'
end
if kind == 'progress' then
  write_progress(queue, id, value, message, keep)
elseif kind == '=data' then
  redis.call('HSET', queue .. id, 'data', value)
elseif kind == 'log' then
  append_log(queue, id, message, keep)
else
  emit_trimmed(queue, kind, 'jobId', id, 'data', value)
end
return 'written'
