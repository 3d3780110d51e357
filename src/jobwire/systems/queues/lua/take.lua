#!lua flags=allow-oom
-- take: start jobs of some queues, one under each token, until there is none or no token is left.
--
-- Each queue first gets its part of the tokens; what others leave goes to those that have more jobs, up
-- to the `most` that may start.
-- Delayed jobs that are due are promoted first, also while none may be started: the queue is paused
-- or limited, or the worker itself starts none for `hold_ms`.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta of the first queue
--   ...      the same of further queues
-- ARGV
--   now_ms, extras, lock_ms, limit_max, limit_ms, name, worker_id
--   ...   for each queue: hold_ms, part, most; then a token for each job
-- RETURNS
--   answers   for each queue an array of these; without one of the last four it may have more jobs
--   job       its id, what a worker has to know of it and the number of its token follow
--   failed    a job could not be started; the server's error follows
--   limited   the rate limit is reached; for how many ms follows, and the due time as for `empty`
--   blocked   the queue is paused, or runs as many jobs as it may
--   empty     nothing waits; when the next delayed job is due follows, 0 if there is none
--   broken    the server refuses to read the queue; its error follows
-- CLAUSES B-2 B-8 B-10 B-19 B-21 B-27
-- INCLUDE queue events enqueue fetch
local QUEUES = 8
local TOKENS = QUEUES + 3 * #KEYS
local by = {
  lock_ms = ARGV[3], limit_max = tonumber(ARGV[4]), limit_ms = tonumber(ARGV[5]),
  name = ARGV[6], worker_id = ARGV[7],
}
local next_token = TOKENS

-- The next free token, for a job that is about to be started.
local function with_token(found, job)
  found.has_started = true
  job[4] = next_token - TOKENS
  next_token = next_token + 1
  return job
end

-- A queue whose keys are not what they should be does not stop the others.
local function tried(found, action, ...)
  local fine, raised = pcall(action, ...)
  if not fine then
    found.answers[#found.answers + 1], found.is_over = { 'broken', error_text(raised) }, true
    next_token = next_token + 1 -- it may have locked a job
  end
end

-- One job that cannot be started does not keep the others from their start.
local function start_popped(found, most)
  for _, id in ipairs(pop_many(found.q, most)) do
    by.token = ARGV[next_token]
    local fine, job = pcall(start_if_exists, found.q, id, by)
    if not fine then
      found.answers[#found.answers + 1] = { 'failed', error_text(job) }
      next_token = next_token + 1 -- it may have locked the job
    elseif job then
      found.answers[#found.answers + 1] = with_token(found, job)
    end
  end
end

local function take_some(found, last)
  by.hold_ms = found.hold_ms
  found.under = found.under or conditions(found.q, by)
  local under = found.under
  if not (under.paused or under.most or under.max or by.hold_ms > 0) then
    start_popped(found, last - next_token + 1)
  end
  while next_token <= last do
    by.token = ARGV[next_token]
    local job = fetch(found.q, by, under)
    if job[1] ~= 'job' then
      found.answers[#found.answers + 1], found.is_over = job, true
      return
    end
    found.answers[#found.answers + 1] = with_token(found, job)
  end
end

local function take_from(found, most)
  local first = next_token
  local last = math.min(#ARGV, next_token + math.min(most, found.most) - 1)
  if not found.is_over and next_token <= last then tried(found, take_some, found, last) end
  found.most = found.most - (next_token - first)
end

local all, answers = {}, {}
for at, key in ipairs(KEYS) do
  answers[at] = {}
  all[at] = {
    q = prefix_of(key), hold_ms = tonumber(ARGV[QUEUES + 3 * at - 3]), answers = answers[at],
    most = tonumber(ARGV[QUEUES + 3 * at - 1]),
  }
  take_from(all[at], tonumber(ARGV[QUEUES + 3 * at - 2]))
end
for _, found in ipairs(all) do take_from(found, #ARGV) end
for _, found in ipairs(all) do
  if found.has_started then tried(found, mark_next, found.q) end
end
return answers
