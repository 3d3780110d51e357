#!lua flags=allow-oom
-- settle: end a job as completed or failed, and start the next one in the same step.
--
-- Parents, deduplication and retention change together with the job, so that a program which reads
-- `completed` finds everything that follows from it. The answer is kept for a minute: the same call
-- asked again, because its reply was lost, is answered as at first.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id, token, target, value, attempts
--   keep_count, keep_age_s, keep_limit, metrics_points, fetch_next
--   next_token, lock_ms, limit_max, limit_ms, name, worker_id
--   ...   fields of the hash to set, name and value
-- RETURNS
--   ok                the job ended; what `take` answers may follow
--   missing           there is no such job
--   no_lock           the lock has expired; nothing was written
--   foreign_lock      another worker has the lock; nothing was written
--   not_active        the job is not active
--   pending_children  children have not ended; nothing was written
--   failed_children   a child failed, the job cannot be completed; nothing was written
-- CLAUSES B-4 B-5 B-8 B-10 B-16 B-17
-- INCLUDE queue events enqueue lock store fetch parents remove dedup finish
local id, token, target, value, attempts = ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local keep = { count = tonumber(ARGV[8]), age_s = tonumber(ARGV[9]), limit = tonumber(ARGV[10]) }
local points, by = tonumber(ARGV[11]), ARGV[12] == '1' and caller(13) or nil
local property = target == 'completed' and 'returnvalue' or 'failedReason'
local job_key = queue .. id
local memory = queue .. 'jobwire:settled:' .. token

-- Asked again: the job is no longer the caller's because the caller has settled it. The next job
-- that came with the first answer is given again while it is still the caller's.
local function refused(word)
  local recorded = redis.call('GET', memory)
  if not recorded or string.sub(recorded, -#id - 1) ~= '\n' .. id then return { word } end
  if string.sub(recorded, 1, 1) == '@' then return { word } end
  local next_id = string.sub(recorded, 1, -#id - 2)
  if by and next_id ~= '' and redis.call('GET', queue .. next_id .. ':lock') == by.token then
    return { 'ok', { 'job', next_id, redis.call('HGETALL', queue .. next_id) } }
  end
  return { 'ok' }
end

local function remember(found)
  if token == '0' then return end
  local next_id = found and found[1] == 'job' and found[2] or ''
  redis.call('SET', memory, next_id .. '\n' .. id, 'PX', 60000)
end

if redis.call('EXISTS', job_key) == 0 then return refused('missing') end
if target == 'completed' then
  if redis.call('SCARD', job_key .. ':dependencies') > 0 then return { 'pending_children' } end
  if redis.call('ZCARD', job_key .. ':unsuccessful') > 0 then return { 'failed_children' } end
end
local left = leave_active(queue, id, token, { unpack(ARGV, 19) }, true)
if left ~= 'ok' then return refused(left) end
trim_events(queue)

local row = redis.call('HMGET', job_key, 'deid', 'parentKey', 'parent')
if row[1] then release_dedup(queue, row[1], id) end
local parent = row[2] and decoded(row[3])
if parent then child_ended(job_key, parent, target, value) end
local made = count(job_key, 'atm')
if keep.count == 0 then
  remove_job(queue, id)
else
  retain(queue, id, target, property, value, keep)
end

local event = { target, 'jobId', id, property, value, 'prev', 'active' }
if extras and target == 'completed' then
  event[8], event[9] = 'timestamp', text(now)
end
emit(queue, unpack(event))
if target == 'failed' and made >= attempts then
  emit(queue, 'retries-exhausted', 'jobId', id, 'attemptsMade', made)
end
if points > 0 then count_minute(queue, target, points) end

local found = by and fetch(queue, by)
remember(found)
if found and (found[1] ~= 'empty' or found[2] ~= '0') then return { 'ok', found } end
if redis.call('LLEN', queue .. 'wait') == 0 and redis.call('LLEN', queue .. 'active') == 0
  and redis.call('ZCARD', queue .. 'prioritized') == 0 then
  emit(queue, 'drained')
end
return found and { 'ok', found } or { 'ok' }
