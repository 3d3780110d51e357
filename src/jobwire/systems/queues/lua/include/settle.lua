-- Ending a job as completed or failed. Parents, deduplication and retention change together with it,
-- so that a program which reads `completed` finds everything that follows from it.

-- Nothing is written before the lock is checked. What the attempt leaves in the hash is written
-- before the job is looked for in `active`, as others do it.
local function leave(q, id, token, target, fields)
  local key = q .. id
  local row = redis.call('HMGET', key, 'timestamp', 'deid', 'parentKey', 'parent', 'atm', 'defa')
  if not row[1] and redis.call('EXISTS', key) == 0 then return 'missing' end
  if target == 'completed'
    and redis.call('EXISTS', key .. ':dependencies', key .. ':unsuccessful') > 0 then
    if redis.call('SCARD', key .. ':dependencies') > 0 then return 'pending_children' end
    if redis.call('ZCARD', key .. ':unsuccessful') > 0 then return 'failed_children' end
  end
  local found = check_lock(q, id, token)
  if found ~= 'ok' then return found end
  if token ~= '0' then
    unlocked[#unlocked + 1], unstalled[#unstalled + 1] = key .. ':lock', id
  end
  if #fields > 0 then redis.call('HSET', key, unpack(fields)) end
  if redis.call('LREM', q .. 'active', -1, id) == 0 then return 'not_active' end
  return 'ok', row
end

-- Before the first end is written: the limit may be 0, and others must see the ends.
local trimmed = {}
local function trim_once(q)
  if trimmed[q] then return end
  trimmed[q] = true
  trim_events(q)
end

-- `job`: id, token, target, value, attempts, keep, fields. Returns a word of RETURNS.
local function settle_job(q, job, points)
  local id, target, value = job.id, job.target, job.value
  local found, row = leave(q, id, job.token, target, job.fields)
  if found ~= 'ok' then return found end
  local key, property = q .. id, target == 'completed' and 'returnvalue' or 'failedReason'
  if row[2] then release_dedup(q, row[2], id) end
  local parent = row[3] and decoded(row[4])
  if parent then
    flush(q)
    child_ended(key, parent, target, value)
  end
  local made = next_count(row[5])
  if job.keep.count == 0 then
    remove_job(q, id)
  else
    redis.call('HSET', key, 'atm', made, property, value, 'finishedOn', text(now))
    if target == 'failed' and row[6] then redis.call('HDEL', key, 'defa') end
    retain(q, id, target, job.keep)
  end

  trim_once(q)
  if extras and target == 'completed' then
    emit(
      q, target, 'jobId', id, property, value, 'prev', 'active', 'timestamp', text(now)
    )
  else
    emit(q, target, 'jobId', id, property, value, 'prev', 'active')
  end
  if target == 'failed' and made >= job.attempts then
    emit(q, 'retries-exhausted', 'jobId', id, 'attemptsMade', made)
  end
  if points > 0 then count_minute(q, target, points) end
  return 'ok'
end
