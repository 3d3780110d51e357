#!lua flags=allow-oom
-- promote: put delayed jobs that are due into the line.
--
-- The entry is there before the job leaves `jobs:delayed`, in one step. Every
-- process does this several times a second, so it looks at a bounded number.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:delayed
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, look
-- RETURNS
--   moved   how many went into the line
--   more    1 if there may be more of them
-- CLAUSES J-9 J-35
-- INCLUDE keys state
local look = tonumber(ARGV[3])
local moved = 0

local due = redis.call('ZRANGEBYSCORE', delayed_key, '-inf', now_ms, 'LIMIT', 0, look)
for _, id in ipairs(due) do
  local row = redis.pcall('HMGET', job_key(id), 'status', 'task', 'payload', 'ttl_s',
    'idempotency_key')
  if not row.err and row[1] == 'queued' then
    enqueue(id, row[2], row[3])
    extend_ttl(id, expiry_of(row[4]), row[5])
    moved = moved + 1
  end
  redis.call('ZREM', delayed_key, id)
end
return {moved, #due == look and 1 or 0}
