-- add: make a job, or answer with the one that already stands in its place.
--
-- Id, hash, queue and events change together. The counter is raised also where no job is made:
-- ids with gaps are normal on this wire.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, custom_id, name, data, opts, timestamp_ms, delay_ms, priority, lifo
--   parent_key, parent, dedup_id, dedup_ttl_ms, dedup_flags, waits_for_children
-- RETURNS
--   added       the job was made; its id follows
--   duplicate   a job of this custom id exists; its id follows
--   deduplicated  another job owns the deduplication id; its id follows
--   no_parent   the parent does not exist; nothing was made
--   has_parent  the job exists and belongs to another parent; nothing was changed
-- CLAUSES B-1 B-8 B-10
-- INCLUDE queue events enqueue store parents remove dedup
local custom, parent_key, flags = ARGV[3], ARGV[11], ARGV[15]
if parent_key ~= '' and redis.call('EXISTS', parent_key) == 0 then return { 'no_parent', '' } end

-- A job's age is that of its producer's timestamp: its delay counts from there.
now = tonumber(ARGV[7])
local counted = redis.call('INCR', queue .. 'id')
max_events(queue)
local job = {
  id = custom ~= '' and custom or text(counted),
  name = ARGV[4], data = ARGV[5], opts = ARGV[6], timestamp = ARGV[7],
  delay = tonumber(ARGV[8]), priority = tonumber(ARGV[9]), lifo = ARGV[10] == '1',
  parent_key = parent_key, parent = ARGV[12], dedup = ARGV[13],
}

-- A job that exists is given to the new parent, unless another one still waits for it.
local function attach()
  local row = redis.call('HMGET', queue .. job.id, 'parentKey', 'returnvalue')
  local old = row[1]
  if old and old ~= parent_key and redis.call('EXISTS', old) == 1 then return 'has_parent' end
  local child = queue .. job.id
  if is_in(queue, 'completed', job.id) then
    redis.call('HSET', parent_key .. ':processed', child, row[2] or 'null')
    local q, id = parent_of(cjson.decode(job.parent))
    release_if_last(q, id)
  else
    redis.call('SADD', parent_key .. ':dependencies', child)
  end
  redis.call('HSET', child, 'parentKey', parent_key, 'parent', job.parent)
  return 'duplicate'
end

if custom ~= '' and redis.call('EXISTS', queue .. custom) == 1 then
  if parent_key ~= '' and attach() == 'has_parent' then return { 'has_parent', '' } end
  emit_trimmed(queue, 'duplicated', 'jobId', custom)
  return { 'duplicate', custom }
end

if job.dedup ~= '' then
  local function has(flag) return string.find(flags, flag, 1, true) ~= nil end
  local rule = {
    id = job.dedup, ttl = tonumber(ARGV[14]), extend = has('e'), replace = has('r'),
    keep_last = has('k'), reschedule = has('s'),
  }
  local owner = deduplicate(queue, rule, job)
  if owner then return { 'deduplicated', owner } end
end

store(queue, job)
if ARGV[16] == '1' then
  redis.call('ZADD', queue .. 'waiting-children', text(now), job.id)
  emit_trimmed(queue, 'waiting-children', 'jobId', job.id)
else
  enqueue(queue, job)
end
if parent_key ~= '' then redis.call('SADD', parent_key .. ':dependencies', queue .. job.id) end
return { 'added', job.id }
