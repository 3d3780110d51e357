-- failures: the newest failed jobs of a queue since a time. Writes nothing.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, since_ms, most
-- RETURNS
--   jobs     how many there are; an array of id, time, name, reason, worker
-- CLAUSES O-11 B-12
-- INCLUDE queue
local since, most = ARGV[3], tonumber(ARGV[4])
local LONGEST = 500
local total = redis.call('ZCOUNT', queue .. 'failed', since, '+inf')
local jobs = {}
if total > 0 then
  local found = redis.call('ZREVRANGEBYSCORE', queue .. 'failed', '+inf', since, 'WITHSCORES',
    'LIMIT', 0, most)
  for at = 1, #found, 2 do
    local row = redis.call('HMGET', queue .. found[at], 'name', 'failedReason', 'workerId', 'pb')
    jobs[#jobs + 1] = { found[at], text(number(found[at + 1]) or 0), row[1] or '',
      string.sub(row[2] or '', 1, LONGEST), row[3] or row[4] or '' }
  end
end
return { total, jobs }
