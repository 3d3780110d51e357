-- Making a job, alone or as a part of a flow. `job` has the fields of the hash as its own names.

-- Whether the job exists and another parent, which still exists too, waits for it.
local function has_other_parent(q, job)
  local old = redis.call('HGET', q .. job.id, 'parentKey')
  return old and old ~= job.parent_key and redis.call('EXISTS', old) == 1
end

-- A job that exists is given to the new parent. `deferred`: parents of a flow are released when
-- the whole flow is there.
local function attach(q, job, deferred)
  local child = q .. job.id
  if is_in(q, 'completed', job.id) then
    local value = redis.call('HGET', child, 'returnvalue') or 'null'
    redis.call('HSET', job.parent_key .. ':processed', child, value)
    if not deferred then release_if_last(parent_of(cjson.decode(job.parent))) end
  else
    redis.call('SADD', job.parent_key .. ':dependencies', child)
  end
  redis.call('HSET', child, 'parentKey', job.parent_key, 'parent', job.parent)
end

-- `rule`: the deduplication, or nil. `waits`: the job waits for children. Returns what `add`
-- answers.
local function add_job(q, job, rule, waits, deferred)
  local counted = redis.call('INCR', q .. 'id')
  max_events(q)
  local custom, is_child = job.id ~= '', job.parent_key ~= ''
  if not custom then job.id = text(counted) end
  if custom and redis.call('EXISTS', q .. job.id) == 1 then
    if is_child then
      if has_other_parent(q, job) then return { 'has_parent', '' } end
      attach(q, job, deferred)
    end
    emit_trimmed(q, 'duplicated', 'jobId', job.id)
    return { 'duplicate', job.id }
  end
  local owner = rule and deduplicate(q, rule, job)
  if owner then return { 'deduplicated', owner } end
  store(q, job)
  if waits then
    redis.call('ZADD', q .. 'waiting-children', text(now), job.id)
    emit_trimmed(q, 'waiting-children', 'jobId', job.id)
  else
    enqueue(q, job)
  end
  if is_child then redis.call('SADD', job.parent_key .. ':dependencies', q .. job.id) end
  return { 'added', job.id }
end
