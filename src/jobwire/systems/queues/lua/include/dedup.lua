-- Deduplication: `de:<id>` names the job that owns a deduplication id, `dn:<id>` keeps the newest
-- job that was held back while the owner ran.

local function has(flags, flag) return string.find(flags, flag, 1, true) ~= nil end

-- The rule of a new job, from its arguments; nil where it has none.
local function read_rule(id, ttl, flags)
  if id == '' then return nil end
  return {
    id = id, ttl = tonumber(ttl), extend = has(flags, 'e'), replace = has(flags, 'r'),
    keep_last = has(flags, 'k'), reschedule = has(flags, 's'),
  }
end

-- The key of a rule with a lifetime expires by itself; one without stays until its owner ends.
local function own(q, rule, id, keep_ttl)
  local key = q .. 'de:' .. rule.id
  if rule.keep_last or rule.ttl == 0 then
    redis.call('SET', key, id)
  elseif keep_ttl then
    redis.call('SET', key, id, 'KEEPTTL')
  else
    redis.call('SET', key, id, 'PX', text(rule.ttl))
  end
end

local function emit_deduplicated(q, owner, rule, dropped)
  emit_trimmed(
    q, 'deduplicated', 'jobId', owner, 'deduplicationId', rule.id, 'deduplicatedJobId', dropped
  )
end

-- An owner that still waits for its time makes way for the newer job.
local function replace_delayed(q, rule, owner, id)
  if redis.call('ZREM', q .. 'delayed', owner) == 0 then return false end
  remove_job(q, owner)
  emit(q, 'removed', 'jobId', owner, 'prev', 'delayed')
  emit_deduplicated(q, id, rule, owner)
  own(q, rule, id, not rule.extend)
  return true
end

local function hold_back(q, rule, job)
  local key = q .. 'dn:' .. rule.id
  local fields = { 'name', job.name, 'data', job.data, 'opts', job.opts, 'jid', job.id }
  if job.parent_key and job.parent_key ~= '' then
    for _, each in ipairs({ 'pk', job.parent_key, 'pd', job.parent }) do
      fields[#fields + 1] = each
    end
  end
  redis.call('DEL', key)
  redis.call('HSET', key, unpack(fields))
  redis.call('PERSIST', q .. 'de:' .. rule.id)
end

local function reschedule(q, owner, delay_ms)
  if not redis.call('ZSCORE', q .. 'delayed', owner) then return end
  redis.call('HSET', q .. owner, 'delay', text(delay_ms))
  delay(q, owner, delay_ms)
  mark_delayed(q)
end

-- The job that runs instead of `job`, or nil if `job` is to be added.
local function deduplicate(q, rule, job)
  local key = q .. 'de:' .. rule.id
  local owner = redis.call('GET', key)
  -- An owner that was deleted by hand would keep its id forever.
  if owner and redis.call('PTTL', key) == -1 and redis.call('EXISTS', q .. owner) == 0 then
    redis.call('DEL', key, q .. 'dn:' .. rule.id)
    owner = nil
  end
  if not owner then
    own(q, rule, job.id)
    return nil
  end
  if rule.keep_last and redis.call('LPOS', q .. 'active', owner) then
    hold_back(q, rule, job)
    emit_deduplicated(q, owner, rule, job.id)
    return owner
  end
  if rule.replace then
    if replace_delayed(q, rule, owner, job.id) then return nil end
    return owner
  end
  if rule.extend and rule.ttl > 0 then own(q, rule, owner) end
  emit_deduplicated(q, owner, rule, job.id)
  if rule.reschedule then reschedule(q, owner, job.delay) end
  return owner
end

-- The owner has ended: its id is free again, or goes to the job that was held back.
local function release_dedup(q, dedup_id, id)
  local key, held = q .. 'de:' .. dedup_id, q .. 'dn:' .. dedup_id
  local ttl = redis.call('PTTL', key)
  if ttl == 0 or ttl == -1 and redis.call('GET', key) == id then redis.call('DEL', key) end
  local row = redis.call('HMGET', held, 'jid', 'name', 'data', 'opts', 'pk', 'pd')
  if not (row[1] and row[2] and row[3] and row[4]) then return end
  redis.call('DEL', held)
  local opts = decoded(row[4]) or {}
  redis.call('INCR', q .. 'id')
  redis.call('SET', key, row[1])
  local job = {
    id = row[1], name = row[2], data = row[3], opts = row[4], timestamp = text(now),
    delay = number(opts.delay) or 0, priority = number(opts.priority) or 0, lifo = opts.lifo,
    parent_key = row[5], parent = row[6], dedup = dedup_id,
  }
  store(q, job)
  enqueue(q, job)
  if row[5] then redis.call('SADD', row[5] .. ':dependencies', q .. job.id) end
end
