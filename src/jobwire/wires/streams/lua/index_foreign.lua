#!lua flags=allow-oom
-- index_foreign: take in jobs that others' gateways have enqueued.
--
-- From then on they are seen in lists, kept from expiring while unfinished, and
-- found again when they fall out of the line. Ours have their entry noted already.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, jobs:open,
-- jobs:index[:<tenant>], jobs:tenants, jobs:guard:index_foreign, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, cursor, look, period_ms
-- RETURNS
--   cursor   the entry to go on after
--   found    how many were taken in
--   more     1 if there may be more of them
-- CLAUSES J-9 J-39 J-41
-- INCLUDE keys state entry start guard
local consumer, cursor, look, period_ms = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local found = 0

if someone_did('index_foreign', period_ms, consumer) then return {'guarded'} end

-- The stream of an emptied server begins anew, and with smaller ids if its clock was set back.
if cursor ~= '-' then
  local last = redis.call('XREVRANGE', queue, '+', '-', 'COUNT', 1)[1]
  if last and later(string.sub(cursor, 2), last[1]) then cursor = '-' end
end

local rows = redis.call('XRANGE', queue, cursor, '+', 'COUNT', look)
for _, row in ipairs(rows) do
  local id = fields_of(row[2]).job_id
  local job = id and redis.pcall('HMGET', job_key(id),
    'status', 'entry_id', 'ttl_s', 'created_ts', 'tenant')
  if not job or job.err or not job[1] or job[2] then
    -- No job, or one of ours.
  elseif terminal[job[1]] then
    -- A foreign worker was quicker than we.
    if index(id, job[4], job[5]) then count(job[1]) end
  elseif not redis.call('ZSCORE', delayed_key, id) then
    take_in(row[1], id, expiry_of(job[3]), job[4], job[5])
    found = found + 1
  end
  cursor = '(' .. row[1]
end
tidy()
return {cursor, found, #rows == look and 1 or 0}
