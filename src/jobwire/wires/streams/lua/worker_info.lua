#!lua flags=allow-oom
-- worker_info: what one worker says of itself, and what it holds at this moment.
--
-- The card is the worker's own word; what it holds is read from the queue, so
-- that it is true also of a worker that has just died.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:worker:<consumer>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, look
-- RETURNS
--   card   a flat list: field, value; empty for a worker that is not ours, or gone
--   held   a flat list: job id, task, tenant, since when
-- CLAUSES J-1 J-39
-- INCLUDE keys entry
local consumer, look = ARGV[1], ARGV[2]
local held = {}

local pending = redis.pcall('XPENDING', queue, 'workers', '-', '+', look, consumer)
for _, one in ipairs(pending.err and {} or pending) do
  local entry = redis.call('XRANGE', queue, one[1], one[1])[1]
  local id = entry and fields_of(entry[2]).job_id
  local row = id and redis.pcall('HMGET', job_key(id),
    'status', 'task', 'tenant', 'started_ts', 'updated_ts')
  if row and not row.err and row[1] == 'running' then
    held[#held + 1] = id
    held[#held + 1] = row[2] or ''
    held[#held + 1] = row[3] or ''
    held[#held + 1] = row[4] or row[5] or ''
  end
end
return {redis.call('HGETALL', worker_key(consumer)), held}
