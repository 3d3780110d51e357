-- active: the jobs of a queue that run, the newest first. Writes nothing.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, most
-- RETURNS
--   jobs     an array of id, name, time of the start, worker
-- CLAUSES O-11 B-12
-- INCLUDE queue
local jobs = {}
for at, id in ipairs(redis.call('LRANGE', queue .. 'active', 0, tonumber(ARGV[3]) - 1)) do
  local row = redis.call('HMGET', queue .. id, 'name', 'processedOn', 'workerId', 'pb')
  jobs[at] = { id, row[1] or '', text(number(row[2]) or 0), row[3] or row[4] or '' }
end
return jobs
