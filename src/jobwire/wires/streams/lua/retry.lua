#!lua flags=allow-oom
-- retry: put jobs whose attempt failed back, to be tried again when due.
--
-- The job's next place is in order before its entry is acked, so no crash loses
-- it. A job whose cancellation was asked meanwhile ends instead.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>,
-- jobs:delayed, jobs:open, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each job: job id, entry, token, delay_ms, data
-- RETURNS
--   settled   it waits for its next attempt, or has ended as asked
--   already   it had ended by another hand; only the ack was done
--   lost      the lease belongs to someone else; nothing was written
--   gone      the job hash expired or is none; the entry was acked
--   refused   the server will not write it; it is to be asked again
-- CLAUSES J-3 J-5 J-9 J-33 J-35
-- INCLUDE keys state fence entry
local consumer = ARGV[3]
local answers = {}

local function again(id, entry, token, delay_ms, data)
  local row = fields(id, 'status', 'owner', 'ttl_s', 'attempt', 'cancel_ts',
    'idempotency_key')
  if not row[1] then
    if holder_of(entry) == consumer then clear(entry) end
    return 'gone'
  end
  local status, owner, expiry = row[1], row[2], expiry_of(row[3])
  if owner == settled(token) then return 'settled' end
  if terminal[status] then
    if holder_of(entry) == consumer then clear(entry) end
    return 'already'
  end
  if not holds(consumer, token, entry, status, owner) then return 'lost' end
  if row[5] then
    finish_canceled(id, expiry, row[4], 'worker.retry')
    redis.call('HSET', job_key(id), 'owner', settled(token))
    clear(entry)
    return 'settled'
  end
  if delay_ms == '0' then
    enqueue(id, content_of(entry, id))
  else
    redis.call('ZADD', delayed_key, now_ms + delay_ms, id)
    redis.call('HDEL', job_key(id), 'entry_id')
  end
  update(id, expiry, 'status', 'queued', 'attempt', (tonumber(row[4]) or 1) + 1,
    'owner', settled(token))
  extend_key(row[6], expiry)
  emit_again(id, expiry, 'retrying', 'worker.retry', data)
  count('retried')
  clear(entry)
  return 'settled'
end

for at = 4, #ARGV, 5 do answers[#answers + 1] = apart(again, unpack(ARGV, at, at + 4)) end
tidy()
return answers
