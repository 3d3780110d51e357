#!lua flags=allow-oom
-- clean: delete the jobs of a state that are older than a moment, at most `count` in a call.
--
-- An active job is deleted only without a lock. The pending iteration of a scheduler stays.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, collection, before_ms, count
-- RETURNS
--   ids      an array of the deleted jobs; as many as `count` means that there may be more
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue parents remove purge
local collection, before_ms, count = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local key = queue .. collection
local FIELDS = {
  delayed = { 'processedOn', 'timestamp' }, prioritized = { 'timestamp' },
  other = { 'finishedOn', 'processedOn', 'timestamp' },
}

local function is_old(id)
  for _, value in ipairs(redis.call('HMGET', queue .. id, unpack(FIELDS[collection] or FIELDS.other))) do
    local moment = number(value)
    if moment then return moment <= before_ms end
  end
  return true
end

local ids = {}
local function clean_list()
  local found = redis.call('LRANGE', key, -count, -1)
  for at, id in ipairs(found) do
    local free = collection ~= 'active' or redis.call('EXISTS', queue .. id .. ':lock') == 0
    if free and not is_current_iteration(queue, id) and is_old(id) then
      -- Marked first and removed together: one pass over the list instead of one for each job.
      redis.call('LSET', key, at - #found - 1, '')
      purge(queue, id)
      ids[#ids + 1] = id
    end
  end
  if #ids > 0 then redis.call('LREM', key, 0, '') end
end

local function clean_set()
  local finished = collection == 'completed' or collection == 'failed'
  local last = finished and text(before_ms) or '+inf'
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, 0, last, 'LIMIT', 0, count)) do
    if finished or not is_current_iteration(queue, id) and is_old(id) then
      purge(queue, id)
      ids[#ids + 1] = id
    end
  end
  remove_members(key, ids)
end

if collection == 'wait' or collection == 'paused' or collection == 'active' then clean_list() else clean_set() end
emit(queue, 'cleaned', 'count', #ids)
return ids
