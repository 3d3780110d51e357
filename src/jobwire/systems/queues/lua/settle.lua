#!lua flags=allow-oom
-- settle: end jobs as completed or failed.
--
-- One job that cannot be written does not keep the others from their end. Each answer is kept for a
-- minute: the same call asked again, because its reply was lost, is answered as at first.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, metrics_points
--   ...   for each job: job_id, token, target, value, attempts, keep_count, keep_age_s, keep_limit,
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
-- CLAUSES B-4 B-5 B-8 B-10 B-16 B-17
-- INCLUDE queue events enqueue lock store parents remove dedup finish settle memory
local points = tonumber(ARGV[3])

local function read_job(at)
  local last = at + 8 + tonumber(ARGV[at + 8])
  return {
    id = ARGV[at], token = ARGV[at + 1], target = ARGV[at + 2], value = ARGV[at + 3],
    attempts = tonumber(ARGV[at + 4]), fields = { unpack(ARGV, at + 9, last) },
    keep = {
      count = tonumber(ARGV[at + 5]), age_s = tonumber(ARGV[at + 6]), limit = tonumber(ARGV[at + 7]),
    },
  }, last + 1
end

local answers, ended, at = {}, false, 4
while at <= #ARGV do
  local job
  job, at = read_job(at)
  local fine, word = pcall(settle_job, queue, job, points)
  if not fine then
    word = { err = error_text(word) }
  elseif word == 'ok' then
    ended = true
    remember_verb(queue, job.id, job.token, 'settle')
  else
    word = refused_verb(queue, job.id, job.token, 'settle', word)[1]
  end
  answers[#answers + 1] = word
end
flush(queue)
if ended then trim_events(queue) end
if ended and redis.call('LLEN', queue .. 'wait') == 0 and redis.call('LLEN', queue .. 'active') == 0
  and redis.call('ZCARD', queue .. 'prioritized') == 0 then
  emit(queue, 'drained')
end
return answers
