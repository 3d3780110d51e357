#!lua flags=allow-oom
-- take_many: start jobs, one under each token, until there is none or no token is left.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, lock_ms, limit_max, limit_ms, name, worker_id
--   ...   a token for each job
-- RETURNS
--   answers  an array of what `take` answers, the last of which may be other than `job`
-- CLAUSES B-2 B-8 B-19
-- INCLUDE queue events enqueue fetch
local by = {
  lock_ms = ARGV[3], limit_max = tonumber(ARGV[4]), limit_ms = tonumber(ARGV[5]),
  name = ARGV[6], worker_id = ARGV[7],
}
local answers, under = {}, conditions(queue, by)
for at = 8, #ARGV do
  by.token = ARGV[at]
  local found = fetch_under(queue, by, under)
  answers[#answers + 1] = found
  if found[1] ~= 'job' then break end
end
if #answers > 0 and answers[1][1] == 'job' then mark_next(queue) end
return answers
