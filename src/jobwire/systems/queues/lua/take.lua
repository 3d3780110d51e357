#!lua flags=allow-oom
-- take: start jobs, one under each token, until there is none or no token is left.
--
-- Delayed jobs that are due are promoted first, also while none may be started: the queue is paused
-- or limited, or the worker itself starts none for `hold_ms`.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, lock_ms, limit_max, limit_ms, hold_ms, name, worker_id
--   ...   a token for each job
-- RETURNS
--   answers   an array of these, of which only the last may be other than `job` or `failed`
--   job       its id and what a worker has to know of it follow
--   limited   the rate limit is reached; for how many ms follows, and the due time as for `empty`
--   blocked   the queue is paused, or runs as many jobs as it may
--   empty     nothing waits; when the next delayed job is due follows, 0 if there is none
--   failed    a job could not be started; the server's error follows
-- CLAUSES B-2 B-8 B-10 B-19 B-21
-- INCLUDE queue events enqueue fetch
local TOKENS = 9
local by = {
  lock_ms = ARGV[3], limit_max = tonumber(ARGV[4]), limit_ms = tonumber(ARGV[5]),
  hold_ms = tonumber(ARGV[6]), name = ARGV[7], worker_id = ARGV[8],
}
local answers, under = {}, conditions(queue, by)

if not (under.paused or under.most or under.max or by.hold_ms > 0) then
  for _, id in ipairs(pop_many(queue, #ARGV - TOKENS + 1)) do
    by.token = ARGV[TOKENS + #answers]
    -- One job that cannot be started does not keep the others from their start.
    local fine, found = pcall(start_if_exists, queue, id, by)
    answers[#answers + 1] = fine and found or not fine and { 'failed', error_text(found) } or nil
  end
end
for at = TOKENS + #answers, #ARGV do
  by.token = ARGV[at]
  local found = fetch(queue, by, under)
  answers[#answers + 1] = found
  if found[1] ~= 'job' then break end
end
if #answers > 0 and answers[1][1] == 'job' then mark_next(queue) end
return answers
