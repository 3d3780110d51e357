#!lua flags=allow-oom
-- renew: extend the locks of all jobs that a worker runs.
--
-- A lock that has expired is not taken again, even if no other worker has the job yet: the stalled
-- check may be about to move it.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, lock_ms
--   ...   for each job: job id, token
-- RETURNS
--   lost      an array of the ids whose lock is gone or another's; these were not changed
-- CLAUSES B-3 B-10 B-17
-- INCLUDE queue
local lock_ms, lost = ARGV[3], {}
for at = 4, #ARGV, 2 do
  local id, token = ARGV[at], ARGV[at + 1]
  local key = queue .. id .. ':lock'
  if redis.call('GET', key) == token then
    redis.call('SET', key, token, 'PX', lock_ms)
    redis.call('SREM', queue .. 'stalled', id)
  else
    lost[#lost + 1] = id
  end
end
return lost
