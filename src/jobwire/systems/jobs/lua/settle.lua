#!lua flags=allow-oom
-- settle: end jobs that this worker still holds.
--
-- Hash, terminal event and acknowledgement change together: a reader never sees "done"
-- without its result, and a job whose lease was lost is never settled twice.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, job:<id>:awaits,
-- job:<id>:stub, idempotency:<name>, jobs:open, jobs:suspended, jobs:queues, the queue of the parent,
-- jobs:stats:<minute>, jobs:failures:<hour>[:<tenant>], jobs:bytes:<tenant>;
-- for the job that follows a failed one jobs:tasks, jobs:queues, jobs:index[:<tenant>], jobs:tenants
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each job: job id, entry, token, status (after a number and a space: the seconds that the
--         job is kept, if they are less than its ttl_s; after a +: the job has a parent), its result or
--         error object,
--         exception: empty, or a JSON array of its type, message and traceback;
--         before the jobs of another queue than the default one: its name, and empty texts
-- RETURNS
--   settled   the job ended with this outcome, now or in an earlier call
--   already   another program had ended it; only the entry was acknowledged
--   lost      the job belongs to another delivery; nothing was written
--   gone      the hash expired or is none; the entry was acknowledged
--   refused   the server refuses to write it; call again
-- CLAUSES J-3 J-4 J-5 J-9 J-31 J-33 J-55 L-8 D-15 D-23
-- INCLUDE keys job state bytes failures fence outcome awaits

-- L-8: when an ended job expires that is kept for less than its ttl_s. A stub stays with its idempotency
-- key, so that a repeated submission gets this job's id.
local function retained_until(id, keep_s, status, name, expiry)
  local kept_until = string.format('%.0f', now_ms + keep_s * 1000)
  if tonumber(kept_until) >= tonumber(expiry) then return expiry end
  if name and name ~= '' then
    local task, created, fingerprint, tenant =
      unpack(redis.call('HMGET', job_key(id), 'task', 'created_ts', 'fingerprint', 'tenant'))
    redis.call('HSET', stub_key(id), 'job_id', id, 'task', task or '', 'status', status,
      'created_ts', created or now, 'updated_ts', now, 'fingerprint', fingerprint or '',
      'tenant', tenant or '')
    redis.call('PEXPIREAT', stub_key(id), expiry)
  end
  redis.call('PEXPIREAT', steps_key(id), kept_until)
  bytes().move(id, kept_until)
  return kept_until
end

local function settle(id, entry, token, status, body, exception)
  -- Every job passes here: its fields are read without a table of names (read_fenced).
  local values = redis.pcall('HMGET', job_key(id),
    'status', 'owner', 'ttl_s', 'started_ts', 'idempotency_key')
  if refused(values) then error(values.err) end
  local owner, refusal = values[2], refusal_of(consumer, token, entry, values[1], values[2])
  if refusal then
    return refusal_answer(refusal, entry, refusal == 'ended' and owner == settled(token))
  end
  local expiry, kept_until, is_child = expiry_of(values[3]), nil, false
  if string.byte(status) < 58 then
    local keep_s, sign
    keep_s, sign, status = string.match(status, '^(%d*) ?(%+?)(%a+)$')
    is_child = sign ~= ''
    if keep_s ~= '' then kept_until = retained_until(id, keep_s, status, values[5], expiry) end
  end
  -- A job that ends soon after its start has its keys' lifetime from then.
  local is_extended = not is_fresh(values[4], expiry)
  local until_ms = kept_until or is_extended and expiry or nil
  if status == 'done' then
    end_job(id, until_ms, status, body, '', 'worker.settle', '{}', 'owner', settled(token))
  else
    end_job(id, until_ms, status, '', body, 'worker.settle', body, 'owner', settled(token))
  end
  if is_extended then extend_key(values[5], expiry) end
  count_since('duration:', values[4] or now)
  store_exception(id, exception)
  if is_child then record_end(id, true) end
  clear(entry)
  return 'settled'
end

-- Read the holders of many jobs of one queue that follow each other.
local jobs, first = 0, nil
local function read_ahead()
  if jobs > 3 then read_holders(consumer, first, jobs + 10) end
  jobs, first = 0, nil
end
for at = 5, #ARGV, 6 do
  local entry = ARGV[at]
  if entry == '' then
    read_ahead()
    select_queue(ARGV[at - 1])
  else
    jobs = jobs + 1
    if not first or entry < first then first = entry end
  end
end
read_ahead()
select_queue('default')
return answer_each(settle, 6)
