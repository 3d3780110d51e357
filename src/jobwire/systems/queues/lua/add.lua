#!lua
-- add: make jobs, or answer with those that already stand in their place.
--
-- Id, hash, queue and events of a job change together. The counter is raised also where no job is
-- made: ids with gaps are normal on this wire.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta of the first queue
--   ...      the same of further queues
-- ARGV
--   now_ms, extras
--   ...   for each job: the number of its queue among the keys, custom_id, name, data, opts,
--         timestamp_ms, and 0 or 1; with 1 follow: delay_ms, priority, lifo, parent_key, parent,
--         dedup_id, dedup_ttl_ms, dedup_flags, waits_for_children
-- RETURNS
--   answers     a flat list: for each job one of these, or the server's error; and an id
--   added       the job was made
--   duplicate   a job of this custom id exists
--   deduplicated  another job owns the deduplication id; the id is that job's
--   no_parent   the parent does not exist; nothing was made
--   has_parent  the job exists and belongs to another parent; nothing was changed
-- CLAUSES B-1 B-8 B-10 B-27
-- INCLUDE queue events enqueue store parents remove dedup add
local BASE, MORE = 7, 9

local function read_job(at)
  local job = {
    id = ARGV[at + 1], name = ARGV[at + 2], data = ARGV[at + 3], opts = ARGV[at + 4],
    timestamp = ARGV[at + 5], delay = 0, priority = 0, lifo = false, parent_key = '', dedup = '',
  }
  if ARGV[at + 6] == '0' then return job, nil, false, at + BASE end
  local delay_ms, priority, lifo, parent_key, parent, dedup, ttl, flags, waits =
    unpack(ARGV, at + BASE, at + BASE + MORE - 1)
  job.delay, job.priority, job.lifo = tonumber(delay_ms), tonumber(priority), lifo == '1'
  job.parent_key, job.parent, job.dedup = parent_key, parent, dedup
  return job, read_rule(dedup, ttl, flags), waits == '1', at + BASE + MORE
end

local function add(q, job, rule, waits)
  if job.parent_key ~= '' and redis.call('EXISTS', job.parent_key) == 0 then
    return { 'no_parent', '' }
  end
  -- A job's age is that of its producer's timestamp: its delay counts from there.
  now = tonumber(job.timestamp)
  return add_job(q, job, rule, waits, false)
end

local answers, at = {}, 3
while at <= #ARGV do
  local number, job, rule, waits = ARGV[at]
  job, rule, waits, at = read_job(at)
  trims = ARGV[at] ~= number -- the last one in line of its queue
  local fine, answer = pcall(add, prefix_of(KEYS[tonumber(number)]), job, rule, waits)
  if not fine then answer = { { err = error_text(answer) }, '' } end
  answers[#answers + 1], answers[#answers + 2] = answer[1], answer[2]
end
return answers
