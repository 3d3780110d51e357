#!lua flags=allow-oom
-- settle: end jobs that this worker still holds.
--
-- Hash, terminal event and ack change together: a reader never sees "done"
-- without its result, and a job whose lease moved on is never settled twice.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>,
-- jobs:open, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each job: job id, entry, token, status, its result or error object, traceback
-- RETURNS
--   settled   the job ended so, now or when this was asked before
--   already   it had ended by another hand; only the ack was done
--   lost      the lease belongs to someone else; nothing was written
--   gone      the job hash expired or is none; the entry was acked
--   refused   the server will not write it; it is to be asked again
-- CLAUSES J-3 J-4 J-5 J-9 J-31 J-33
-- INCLUDE keys state fence
local consumer = ARGV[3]
local answers = {}

local function settle(id, entry, token, status, said, traceback)
  local row = fields(id, 'status', 'owner', 'ttl_s', 'started_ts', 'idempotency_key')
  if not row[1] then
    if holder_of(entry) == consumer then clear(entry) end
    return 'gone'
  end
  if terminal[row[1]] then
    if row[2] == settled(token) then return 'settled' end
    if holder_of(entry) == consumer then clear(entry) end
    return 'already'
  end
  if not holds(consumer, token, entry, row[1], row[2]) then return 'lost' end
  local expiry = expiry_of(row[3])
  if status == 'done' then
    finish(id, expiry, status, said, '', 'worker.settle', '{}', 'owner', settled(token))
  else
    finish(id, expiry, status, '', said, 'worker.settle', said, 'owner', settled(token))
  end
  extend_key(row[5], expiry)
  count_since('duration:', row[4] or now)
  if traceback ~= '' then redis.call('HSET', job_key(id), 'traceback', traceback) end
  clear(entry)
  return 'settled'
end

local count, first = (#ARGV - 3) / 6, ARGV[5]
if count > 3 then
  for at = 11, #ARGV, 6 do
    if ARGV[at] < first then first = ARGV[at] end
  end
  look_ahead(consumer, first, count + 10)
end
for at = 4, #ARGV, 6 do answers[#answers + 1] = apart(settle, unpack(ARGV, at, at + 5)) end
tidy()
return answers
