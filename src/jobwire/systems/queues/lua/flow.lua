-- flow: make a tree of jobs, parents before their children, in one step.
--
-- A parent whose children have all ended before is released once the whole tree is there. A child
-- that belongs to another parent refuses the whole flow: half of a flow would wait without end.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta of the root's queue
--   ...      the same of the queues of its descendants
-- ARGV
--   now_ms, extras
--   ...   of each job: the number of its queue among KEYS, custom_id, name, data, opts,
--         timestamp_ms, delay_ms, priority, lifo, parent_key, parent, waits_for_children, dedup_id,
--         dedup_ttl_ms, dedup_flags
-- RETURNS
--   ok          all jobs were made or existed; their ids follow in the given order
--   no_parent   the parent of the root does not exist; nothing was made
--   has_parent  a job exists and belongs to another parent; its id follows; nothing was made
-- CLAUSES B-8 B-10 B-21
-- INCLUDE queue events enqueue store parents remove dedup add
local FIELDS = 15
local asked_at = now
local nodes, made_here = {}, {}
for at = 3, #ARGV, FIELDS do
  local q = string.sub(KEYS[tonumber(ARGV[at])], 1, -(#'meta' + 1))
  local job = {
    id = ARGV[at + 1], name = ARGV[at + 2], data = ARGV[at + 3], opts = ARGV[at + 4],
    timestamp = ARGV[at + 5], delay = tonumber(ARGV[at + 6]), priority = tonumber(ARGV[at + 7]),
    lifo = ARGV[at + 8] == '1', parent_key = ARGV[at + 9], parent = ARGV[at + 10],
    dedup = ARGV[at + 12],
  }
  local rule = read_rule(ARGV[at + 12], ARGV[at + 13], ARGV[at + 14])
  nodes[#nodes + 1] = { q = q, job = job, rule = rule, waits = ARGV[at + 11] == '1' }
  if job.parent_key ~= '' then
    if not made_here[job.parent_key] and redis.call('EXISTS', job.parent_key) == 0 then
      return { 'no_parent' }
    end
    if has_other_parent(q, job) then return { 'has_parent', job.id } end
  end
  made_here[q .. job.id] = true
end

local answer, parents, noted = { 'ok' }, {}, {}
for _, node in ipairs(nodes) do
  now = tonumber(node.job.timestamp)
  answer[#answer + 1] = add_job(node.q, node.job, node.rule, node.waits, true)[2]
  local parent_key = node.job.parent_key
  if parent_key ~= '' and not noted[parent_key] then
    noted[parent_key] = true
    parents[#parents + 1] = node.job.parent
  end
end
now = asked_at
for _, parent in ipairs(parents) do
  local q, id = parent_of(cjson.decode(parent))
  if redis.call('EXISTS', q .. id) == 1 then release_if_last(q, id) end
end
return answer
