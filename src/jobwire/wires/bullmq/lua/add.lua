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
-- INCLUDE queue events enqueue store parents remove dedup add
local parent_key, flags = ARGV[11], ARGV[15]
if parent_key ~= '' and redis.call('EXISTS', parent_key) == 0 then return { 'no_parent', '' } end

-- A job's age is that of its producer's timestamp: its delay counts from there.
now = tonumber(ARGV[7])
local job = {
  id = ARGV[3], name = ARGV[4], data = ARGV[5], opts = ARGV[6], timestamp = ARGV[7],
  delay = tonumber(ARGV[8]), priority = tonumber(ARGV[9]), lifo = ARGV[10] == '1',
  parent_key = parent_key, parent = ARGV[12], dedup = ARGV[13],
}

local function has(flag) return string.find(flags, flag, 1, true) ~= nil end

local rule = job.dedup ~= '' and {
  id = job.dedup, ttl = tonumber(ARGV[14]), extend = has('e'), replace = has('r'),
  keep_last = has('k'), reschedule = has('s'),
} or nil
return add_job(queue, job, rule, ARGV[16] == '1', false)
