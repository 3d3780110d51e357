-- Running a finished job again: its outcome is forgotten, and its parent waits for it as before. A
-- parent that went on meanwhile is not called back.
local OUTCOMES = { completed = 'returnvalue', failed = 'failedReason' }

local function forget_outcome(q, id, state)
  local key = q .. id
  redis.call('HDEL', key, 'finishedOn', 'processedOn', OUTCOMES[state])
  local parent_key = redis.call('HGET', key, 'parentKey')
  if not parent_key or redis.call('EXISTS', parent_key) == 0 then return end
  local recorded
  if state == 'failed' then
    recorded = redis.call('ZREM', parent_key .. ':unsuccessful', key) == 1
      or redis.call('HDEL', parent_key .. ':failed', key) == 1
  else
    recorded = redis.call('HDEL', parent_key .. ':processed', key) == 1
  end
  if recorded then redis.call('SADD', parent_key .. ':dependencies', key) end
end
