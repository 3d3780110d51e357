#!lua flags=allow-oom
-- settle: end jobs of some queues as completed or failed.
--
-- One job that cannot be written does not keep the others from their end. Each answer is kept for a
-- minute: the same call asked again, because its reply was lost, is answered as at first.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta of the first queue
--   ...      the same of further queues
-- ARGV
--   now_ms, extras, metrics_points
--   ...   for each job: the number of its queue among the keys (jobs of one queue follow each other),
--         job_id, token, target, value, attempts, keep_count, keep_age_s, keep_limit,
--         how_many, and so many names and values of the hash
-- RETURNS
--   answers           for each job one of these words, or the server's error
--   ok                the job ended
--   missing           there is no such job
--   no_lock           the lock has expired; nothing was written
--   foreign_lock      another worker has the lock; nothing was written
--   not_active        the job is not active
--   pending_children  children have not ended; nothing was written
--   failed_children   a child failed, the job cannot be completed; nothing was written
-- CLAUSES B-4 B-5 B-8 B-10 B-16 B-17 B-27
-- INCLUDE queue events enqueue lock store parents remove dedup finish settle memory
local points = tonumber(ARGV[3])

local function read_job(at)
  local last = at + 9 + tonumber(ARGV[at + 9])
  return {
    q = prefix_of(KEYS[tonumber(ARGV[at])]), id = ARGV[at + 1], token = ARGV[at + 2],
    target = ARGV[at + 3], value = ARGV[at + 4], attempts = tonumber(ARGV[at + 5]),
    fields = { unpack(ARGV, at + 10, last) },
    keep = {
      count = tonumber(ARGV[at + 6]), age_s = tonumber(ARGV[at + 7]), limit = tonumber(ARGV[at + 8]),
    },
  }, last + 1
end

-- A word of RETURNS, and whether the job ended now.
local function settle_one(job)
  local fine, word = pcall(settle_job, job.q, job, points)
  if not fine then return { err = error_text(word) } end
  if word ~= 'ok' then return refused_verb(job.q, job.id, job.token, 'settle', word)[1] end
  remember_verb(job.q, job.id, job.token, 'settle')
  return word, true
end

-- What is written once for all jobs of a queue.
local function finish_queue(q, ended)
  flush(q)
  if not ended then return end
  if redis.call('LLEN', q .. 'wait') == 0 and redis.call('LLEN', q .. 'active') == 0
    and redis.call('ZCARD', q .. 'prioritized') == 0 then
    emit(q, 'drained')
  end
end

local answers, at, job = {}, 4, nil
if at <= #ARGV then job, at = read_job(at) end
while job do
  local q, first, ended = job.q, #answers + 1, false
  while job and job.q == q do
    local word, ended_now = settle_one(job)
    ended = ended or ended_now or false
    answers[#answers + 1] = word
    job = nil
    if at <= #ARGV then job, at = read_job(at) end
  end
  local fine, raised = pcall(finish_queue, q, ended)
  if not fine then
    forget_flush()
    for each = first, #answers do
      if answers[each] == 'ok' then answers[each] = { err = error_text(raised) } end
    end
  end
end
return answers
