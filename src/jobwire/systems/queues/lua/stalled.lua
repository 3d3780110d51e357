#!lua flags=allow-oom
-- stalled: put jobs whose worker stopped renewing back in line.
--
-- Two checks are needed to find one: the first notes all active jobs, renewals take themselves off
-- that list, and the second moves what is left without a lock. All programs of a queue share one
-- check an interval.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, interval_ms, max_stalled
-- RETURNS
--   ids       an array of the jobs that were moved
-- CLAUSES B-6 B-10
-- INCLUDE queue events enqueue slots
local guard, noted = queue .. 'stalled-check', queue .. 'stalled'
if redis.call('EXISTS', guard) == 1 then return {} end
redis.call('SET', guard, text(now), 'PX', ARGV[3])
trim_events(queue)

local moved = {}
local suspects = redis.call('SMEMBERS', noted)
redis.call('DEL', noted)
for _, id in ipairs(suspects) do
  if redis.call('EXISTS', queue .. id .. ':lock') == 0
    and redis.call('LREM', queue .. 'active', 1, id) > 0 then
    -- The next run of a scheduler depends on its job, which is started again without limit.
    local times = count(queue .. id, 'stc')
    if times > tonumber(ARGV[4]) and not is_scheduled(queue, id) then
      redis.call('HSET', queue .. id, 'defa', 'job stalled more than allowable limit')
    end
    push(queue, id, 0, true)
    emit_waiting(queue, false, id, 'active')
    if extras then
      emit(queue, 'stalled', 'jobId', id, 'timestamp', text(now))
    else
      emit(queue, 'stalled', 'jobId', id)
    end
    moved[#moved + 1] = id
  end
end
local active = redis.call('LRANGE', queue .. 'active', 0, -1)
for at = 1, #active, 5000 do
  redis.call('SADD', noted, unpack(active, at, math.min(at + 4999, #active)))
end
return moved
