#!lua flags=allow-oom
-- release: give jobs back unharmed, for others to take at once.
--
-- The new entry is there before the old one goes. Nothing is counted: the
-- delivery is taken back, the attempt stays. The place in line is lost.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>,
-- jobs:open, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each job: job id, entry, token; without a token: an entry that was read, not started
-- RETURNS
--   settled   it waits in line again, or has ended as asked
--   already   it had ended by another hand; only the ack was done
--   lost      the lease belongs to someone else; nothing was written
--   gone      the job hash expired or is none; the entry was acked
--   refused   the server will not write it; it is to be asked again
-- CLAUSES J-5 J-9 J-33 J-40
-- INCLUDE keys state fence entry
local consumer = ARGV[3]
local answers = {}

local function give_back(id, entry, token)
  local row = fields(id, 'status', 'owner', 'ttl_s', 'attempt', 'cancel_ts', 'deliveries',
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
  local ours = holds(consumer, token, entry, status, owner)
  if token == '' then ours = status == 'queued' and holder_of(entry) == consumer end
  if not ours then return 'lost' end
  if row[5] then
    finish_canceled(id, expiry, row[4], 'worker.release')
    redis.call('HSET', job_key(id), 'owner', settled(token))
    clear(entry)
    return 'settled'
  end
  enqueue(id, content_of(entry, id))
  if token == '' then
    update(id, expiry)
  else
    local deliveries = math.max(0, (tonumber(row[6]) or 1) - 1)
    update(id, expiry, 'status', 'queued', 'deliveries', deliveries, 'owner', settled(token))
    emit_again(id, expiry, 'queued', 'worker.release', '{}')
    count('released')
  end
  extend_key(row[7], expiry)
  clear(entry)
  return 'settled'
end

for at = 4, #ARGV, 3 do answers[#answers + 1] = apart(give_back, unpack(ARGV, at, at + 2)) end
tidy()
return answers
