#!lua flags=allow-oom
-- suspend: let jobs wait for a time, a signal or their children, without a worker.
--
-- A job may have several waits, of branches of its handler: it goes on when any of them is over. The
-- decision is inside this step: what is recorded already is not awaited, and a job that lacks nothing is
-- queued again. Otherwise a signal that comes between the worker's look and this call would be forgotten.
-- Neither the attempt nor the delivery is counted. A job whose cancellation was requested ends.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, job:<id>:awaits,
-- idempotency:<name>, jobs:suspended, jobs:delayed, jobs:open, jobs:queues, jobs:stats:<minute>,
-- jobs:bytes:<tenant>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each job: job id, entry, token,
--         kind: that of its first wait, or `restart`: the job begins anew,
--         content: a JSON array of its waits, or its new payload. A wait is an array of its kind (sleep,
--         signal or children), its name, in how many ms it is due, the field of the record in which the due
--         time is kept, or an empty text, and an array of the fields of the record that it lacks,
--         read: a JSON array of the signals that a restarted job has read; those are forgotten,
--         max_suspended: how many jobs may be suspended;
--         before the jobs of another queue than the default one: its name, and empty texts
-- RETURNS
--   settled   the job is suspended or queued again, or has ended as requested
--   already   another program had ended it; only the entry was acknowledged
--   lost      the job belongs to another delivery; nothing was written
--   gone      the hash expired or is none; the entry was acknowledged
--   refused   the server refuses to write it; call again
-- CLAUSES J-5 J-9 J-33 D-8 D-9a D-11 D-12 D-13 D-15 D-24 D-29
-- INCLUDE keys job state bytes fence entry outcome awaits
local function without_delivery(job, token)
  local attempt, deliveries = tonumber(job.attempt) or 1, math.max(0, (tonumber(job.deliveries) or 1) - 1)
  update(job.id, nil, 'status', 'queued', 'owner', settled(token), 'deliveries', deliveries,
    -- D-7: attempts and lost deliveries before it no longer count.
    'progress_attempt', attempt, 'excused_deliveries', math.max(0, deliveries - attempt + 1))
end

-- The names that the record lacks. A child that has ended, by whatever program, is recorded now.
local function lacking(id, names)
  local missing = {}
  for _, name in ipairs(names) do
    if redis.call('HEXISTS', steps_key(id), name) == 0 and string.sub(name, 1, 2) == 'c:' then
      local child = redis.call('HGET', steps_key(id), 'k:' .. string.sub(name, 3))
      child = child and cjson.decode(child)[1]
      if child then awaits().record_child(child, id, string.sub(name, 3)) end
    end
    if redis.call('HEXISTS', steps_key(id), name) == 0 then missing[#missing + 1] = name end
  end
  return missing
end

-- D-11, D-12: the due time; a later run that waits for the same gets the one that is recorded, unless it
-- waits for children, where it only looks again.
local function due_of(id, after_ms, field)
  local due_ms = string.format('%.0f', now_ms + after_ms)
  if string.sub(field, 1, 2) == 'w:' then
    redis.call('HSET', steps_key(id), field, due_ms)
    return tonumber(due_ms)
  end
  if field == '' or redis.call('HSETNX', steps_key(id), field, due_ms) == 1 then return tonumber(due_ms) end
  return tonumber(redis.call('HGET', steps_key(id), field)) or now_ms
end

local function queue_again(job, entry, expiry)
  enqueue(job.id, content_of(entry, job.id))
  redis.call('HDEL', job_key(job.id), 'waits_for')
  emit_trimmed(job.id, expiry, 'queued', 'worker.suspend', '{}')
  extend_ttl(job.id, expiry, job.idempotency_key)
end

-- The signals that have come and that nobody has read: fields and values, and their bytes.
local function unread_signals(id, read)
  local is_read, kept, size = {}, {}, 0
  for _, name in ipairs(cjson.decode(read)) do is_read['g:' .. name] = true end
  for _, field in ipairs(redis.call('HKEYS', steps_key(id))) do
    local value = string.sub(field, 1, 2) == 'g:' and not is_read[field] and redis.call('HGET', steps_key(id), field)
    -- Without a value it is one that did not come in time.
    if value and string.find(value, ',', 1, true) then
      kept[#kept + 1], kept[#kept + 2] = field, value
      size = size + #value
    end
  end
  return kept, size
end

-- D-24: the record has nothing but unread signals, and the payload is another.
local function restart(job, token, payload, read)
  local id, expiry = job.id, expiry_of(job.ttl_s)
  local restarts = (tonumber(redis.call('HGET', steps_key(id), 'n:')) or 0) + 1
  local kept, size = unread_signals(id, read)
  bytes().change(id, payload)
  redis.call('DEL', steps_key(id), awaits_key(id))
  redis.call('HDEL', job_key(id), 'waits_for', 'children', 'outside_bytes', 'kept_children')
  -- Children of the new beginning are other jobs than those before it.
  redis.call('HSET', steps_key(id), 'n:', restarts, unpack(kept))
  redis.call('HSET', job_key(id), 'payload', payload, 'steps', 1 + #kept / 2)
  if size > 0 then
    bytes().grow(id, size)
    redis.call('HSET', job_key(id), 'outside_bytes', size)
  end
  enqueue(id, redis.call('HGET', job_key(id), 'task'), payload)
  without_delivery(job, token)
  emit_trimmed(id, expiry, 'queued', 'worker.restart', '{}')
  extend_ttl(id, expiry, job.idempotency_key)
end

-- D-9a: what all waits lack, in groups if there are several, when the first one is due, and whether one is
-- over.
local function waits_of(id, waits)
  local names, first_due_ms, is_over = {}, nil, false
  for group, wait in ipairs(waits) do
    local _, _, after_ms, field, wanted = unpack(wait)
    local due_ms, missing = due_of(id, after_ms, field), lacking(id, wanted)
    is_over = is_over or #wanted > 0 and #missing == 0 or due_ms <= now_ms
    if due_ms <= now_ms then awaits().end_waits(id, missing) end
    first_due_ms = math.min(first_due_ms or due_ms, due_ms)
    for _, name in ipairs(missing) do names[#names + 1] = #waits > 1 and group .. ' ' .. name or name end
  end
  return names, first_due_ms, is_over
end

local function suspend(id, entry, token, kind, content, read, max_suspended)
  local job, refusal = read_fenced(consumer, id, entry, token, 'attempt', 'cancel_ts', 'deliveries', 'parent',
    'created_ts', 'deadline_s')
  if refusal then return refusal_answer(refusal, entry, job.owner == settled(token)) end
  local expiry = expiry_of(job.ttl_s)
  if job.cancel_ts or job.parent and awaits().is_orphaned(job.parent) then
    return end_canceled(job, entry, token, expiry, 'worker.suspend')
  end
  if kind == 'restart' then
    restart(job, token, content, read)
    clear(entry)
    return 'settled'
  end
  local waits = cjson.decode(content)
  local missing, due_ms, is_over = waits_of(id, waits)
  redis.call('DEL', awaits_key(id))
  awaits().count_records(id)
  -- D-29: at its deadline it is queued, and a worker ends it.
  due_ms = math.min(due_ms, now_ms + math.max(0, ms_left(job) or due_ms))
  if is_over then
    queue_again(job, entry, expiry)
  elseif redis.call('ZCARD', suspended_key) >= tonumber(max_suspended) then
    -- It looks again in a minute. As a delayed job it is backlog, which submissions feel.
    redis.call('ZADD', delayed_key, math.min(due_ms, now_ms + 60000), id)
    redis.call('HDEL', job_key(id), 'entry_id')
    emit_trimmed(id, expiry, 'queued', 'worker.suspend', '{}')
    extend_ttl(id, expiry, job.idempotency_key)
  else
    expiry = awaits().suspended_expiry(job.ttl_s, due_ms)
    bytes().move(id, expiry)
    local data = '{"for":"' .. kind .. '","name":' .. cjson.encode(waits[1][2])
      .. string.format(',"until":%.0f', due_ms) .. (waits[2] and ',"more":' .. #waits - 1 or '') .. '}'
    for at = 1, #missing, 1000 do
      redis.call('SADD', awaits_key(id), unpack(missing, at, math.min(at + 999, #missing)))
    end
    redis.call('PEXPIREAT', awaits_key(id), expiry)
    redis.call('ZADD', suspended_key, due_ms, id)
    redis.call('HDEL', job_key(id), 'entry_id')
    redis.call('HSET', job_key(id), 'waits_for', data)
    emit_trimmed(id, expiry, 'suspended', 'worker.suspend', data)
    extend_ttl(id, expiry, job.idempotency_key)
    awaits().extend_children(id, expiry)
  end
  without_delivery(job, token)
  clear(entry)
  return 'settled'
end

return answer_each(suspend, 7)
