#!lua flags=allow-oom
-- settle: end jobs as completed or failed, and start the next one in the same step.
--
-- One job that cannot be written does not keep the others from their end. Each answer is kept for a
-- minute: the same call asked again, because its reply was lost, is answered as at first.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, metrics_points, fetch_next
--   next_token, lock_ms, limit_max, limit_ms, name, worker_id
--   ...   for each job: job_id, token, target, value, attempts, keep_count, keep_age_s, keep_limit,
--         how_many, and so many names and values of the hash. A call with fetch_next has one job.
-- RETURNS
--   answers           for each job a word or the server's error; what `take` answers may follow
--   ok                the job ended
--   missing           there is no such job
--   no_lock           the lock has expired; nothing was written
--   foreign_lock      another worker has the lock; nothing was written
--   not_active        the job is not active
--   pending_children  children have not ended; nothing was written
--   failed_children   a child failed, the job cannot be completed; nothing was written
-- CLAUSES B-4 B-5 B-8 B-10 B-16 B-17
-- INCLUDE queue events enqueue lock store fetch parents remove dedup finish settle
local points, by = tonumber(ARGV[3]), ARGV[4] == '1' and caller(5) or nil

local function memory(token) return queue .. 'jobwire:settled:' .. token end

-- Asked again: the job is no longer the caller's because the caller has settled it. Returns the id of
-- the job that came with the first answer, or an empty text.
local function settled_before(job)
  local recorded = redis.call('GET', memory(job.token))
  if not recorded or string.sub(recorded, -#job.id - 1) ~= '\n' .. job.id then return nil end
  if string.sub(recorded, 1, 1) == '@' then return nil end
  return string.sub(recorded, 1, -#job.id - 2)
end

local function remember(job, next_id)
  if job.token == '0' then return end
  redis.call('SET', memory(job.token), next_id .. '\n' .. job.id, 'PX', 60000)
end

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

local answers, ended, next_id, at = {}, nil, '', 11
while at <= #ARGV do
  local job
  job, at = read_job(at)
  local fine, word = pcall(settle_job, queue, job, points)
  if not fine then
    word = { err = error_text(word) }
  elseif word == 'ok' then
    ended = job
    if not by then remember(job, '') end
  else
    local earlier = settled_before(job)
    if earlier then word, next_id = 'ok', earlier end
  end
  answers[#answers + 1] = word
end
flush(queue)

-- The next job of the first answer is given again while it is still the caller's.
if not ended then
  if by and next_id ~= '' and redis.call('GET', queue .. next_id .. ':lock') == by.token then
    local row = read_row(queue .. next_id)
    if row then return { answers, { 'job', next_id, row } } end
  end
  return { answers }
end

local found = by and fetch(queue, by)
if by then remember(ended, found[1] == 'job' and found[2] or '') end
if found and (found[1] ~= 'empty' or found[2] ~= '0') then return { answers, found } end
if redis.call('LLEN', queue .. 'wait') == 0 and redis.call('LLEN', queue .. 'active') == 0
  and redis.call('ZCARD', queue .. 'prioritized') == 0 then
  emit(queue, 'drained')
end
return { answers, found }
