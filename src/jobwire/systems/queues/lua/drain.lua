#!lua flags=allow-oom
-- drain: delete the jobs that wait, at most `count` in a call.
--
-- The pending iteration of a scheduler stays where it is: without it the scheduler would end.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, delayed, count
-- RETURNS
--   removed  how many jobs were deleted; 0 means that none is left
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue parents remove purge
local count = tonumber(ARGV[4])
local kept, schedulers = {}, redis.call('ZRANGE', queue .. 'repeat', 0, -1, 'WITHSCORES')
for at = 1, #schedulers, 2 do
  kept['repeat:' .. schedulers[at] .. ':' .. text(tonumber(schedulers[at + 1]))] = true
end
-- So many may stand before a job that can be deleted.
local beside = #schedulers / 2
local removed = 0

local function drained(ids)
  local gone, stay = {}, {}
  for _, id in ipairs(ids) do
    if kept[id] or removed >= count then
      stay[#stay + 1] = id
    else
      purge(queue, id)
      gone[#gone + 1] = id
      removed = removed + 1
    end
  end
  return gone, stay
end

local function window() return count - removed + beside - 1 end

for _, name in ipairs({ 'wait', 'paused' }) do
  local ids = redis.call('LRANGE', queue .. name, 0, window())
  local gone, stay = drained(ids)
  if #gone > 0 then
    redis.call('LTRIM', queue .. name, #ids, -1)
    for at = #stay, 1, -1 do redis.call('LPUSH', queue .. name, stay[at]) end
  end
end
for _, name in ipairs(ARGV[3] == '1' and { 'delayed', 'prioritized' } or { 'prioritized' }) do
  if removed < count then
    remove_members(queue .. name, (drained(redis.call('ZRANGE', queue .. name, 0, window()))))
  end
end
return removed
