#!lua flags=allow-oom
-- remove_children: delete the children that a job waits for, except those that are being run.
--
-- The job is released if none is left.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id
-- RETURNS
--   ok       the children are gone
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue parents remove purge tree
local key = queue .. ARGV[3]
for _, child in ipairs(children_of(key, false)) do
  local q, id = split_key(child)
  remove_tree(q, id, key, { children = true, unprocessed = true }, {})
end
return 'ok'
