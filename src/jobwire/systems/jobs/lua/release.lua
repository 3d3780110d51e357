#!lua flags=allow-oom
-- release: return jobs to the queue without counting them, for other workers to take at once.
--
-- The new entry is written before the old one is removed. The delivery is taken back and
-- the attempt stays; the job goes to the end of the queue.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>,
-- jobs:open, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each job: job id, entry, token; without a token: an entry that was read, not started
--         before the jobs of another queue than the default one: its name, and empty texts
-- RETURNS
--   settled   the job is queued again, or has ended as requested
--   already   another program had ended it; only the entry was acknowledged
--   lost      the job belongs to another delivery; nothing was written
--   gone      the hash expired or is none; the entry was acknowledged
--   refused   the server refuses to write it; call again
-- CLAUSES J-5 J-9 J-33 J-40
-- INCLUDE keys job state bytes fence entry outcome awaits
local function release(id, entry, token)
  local job, refusal = read_fenced(consumer, id, entry, token, 'attempt', 'cancel_ts', 'deliveries')
  local is_unstarted = token == ''
  -- Without a token the entry was read and not started: its job must still be queued.
  if is_unstarted and refusal ~= 'gone' and refusal ~= 'ended' then
    local is_ours = job.status == 'queued' and holder_of(entry) == consumer
    refusal = (not is_ours or job.owner == settled(token)) and 'lost' or nil
  end
  if refusal then return refusal_answer(refusal, entry, job.owner == settled(token)) end
  local expiry = expiry_of(job.ttl_s)
  if job.cancel_ts then return end_canceled(job, entry, token, expiry, 'worker.release') end
  enqueue(id, content_of(entry, id))
  if is_unstarted then
    update(id, expiry)
  else
    local deliveries = math.max(0, (tonumber(job.deliveries) or 1) - 1)
    update(id, expiry, 'status', 'queued', 'deliveries', deliveries, 'owner', settled(token))
    emit_trimmed(id, expiry, 'queued', 'worker.release', '{}')
    count('released')
  end
  extend_key(job.idempotency_key, expiry)
  clear(entry)
  return 'settled'
end

return answer_each(release, 3)
