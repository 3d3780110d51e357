#!lua flags=allow-oom
-- renew: extend the locks of all jobs that a worker runs.
--
-- A lock that has expired is not taken again, even if no other worker has the job yet: the stalled
-- check may be about to move it.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, lock_ms, cancel_reason
--   ...   for each job: job id, token
-- RETURNS
--   lost      two arrays of tokens: lock gone or another's, nothing was changed; job to be canceled
-- CLAUSES B-3 B-10 B-17
-- INCLUDE queue
local lock_ms, reason, lost, canceled = ARGV[3], ARGV[4], {}, {}
for at = 5, #ARGV, 2 do
  local id, token = ARGV[at], ARGV[at + 1]
  local key = queue .. id .. ':lock'
  if redis.call('GET', key) == token then
    redis.call('SET', key, token, 'PX', lock_ms)
    redis.call('SREM', queue .. 'stalled', id)
    if redis.call('HGET', queue .. id, 'defa') == reason then canceled[#canceled + 1] = token end
  else
    lost[#lost + 1] = token
  end
end
return { lost, canceled }
