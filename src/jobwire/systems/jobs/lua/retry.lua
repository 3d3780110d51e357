#!lua flags=allow-oom
-- retry: put jobs whose attempt failed back, to run again when due.
--
-- The job's next queue entry or due time is written before its entry is acknowledged,
-- so no crash loses the job. A job whose cancellation was requested ends instead.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, idempotency:<name>,
-- jobs:delayed, jobs:open, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each job: job id, entry, token, delay_ms, data,
--         exception: empty, or a JSON array of its type, message and traceback; likewise
--         again: the steps whose errors ended the attempt;
--         before the jobs of another queue than the default one: its name, and empty texts
-- RETURNS
--   settled   the job waits for its next attempt, or has ended as requested
--   already   another program had ended it; only the entry was acknowledged
--   lost      the job belongs to another delivery; nothing was written
--   gone      the hash expired or is none; the entry was acknowledged
--   refused   the server refuses to write it; call again
-- CLAUSES J-3 J-5 J-9 J-33 J-35 J-55 D-4a D-29
-- INCLUDE keys job state bytes fence entry outcome awaits
local function retry(id, entry, token, delay_ms, data, exception, again)
  local job, refusal = read_fenced(consumer, id, entry, token, 'attempt', 'cancel_ts', 'created_ts', 'deadline_s')
  if refusal then return refusal_answer(refusal, entry, job.owner == settled(token)) end
  local expiry = expiry_of(job.ttl_s)
  if job.cancel_ts then return end_canceled(job, entry, token, expiry, 'worker.retry') end
  if delay_ms == '0' then
    enqueue(id, content_of(entry, id))
  else
    redis.call('ZADD', delayed_key, now_ms + math.min(delay_ms, math.max(0, ms_left(job) or delay_ms)), id)
    redis.call('HDEL', job_key(id), 'entry_id')
  end
  update(id, expiry, 'status', 'queued', 'attempt', (tonumber(job.attempt) or 1) + 1,
    'owner', settled(token))
  extend_key(job.idempotency_key, expiry)
  emit_trimmed(id, expiry, 'retrying', 'worker.retry', data)
  store_exception(id, exception)
  for _, name in ipairs(again ~= '' and cjson.decode(again) or {}) do
    redis.call('HDEL', steps_key(id), 'e:' .. name)
  end
  count('retried')
  clear(entry)
  return 'settled'
end

return answer_each(retry, 7)
