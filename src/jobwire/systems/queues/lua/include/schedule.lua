-- Replacing the pending iteration of a job scheduler.

-- Whether the pending iteration waited and is deleted. While the queue is paused only the list
-- `paused` is looked at, as with the official packages.
local function replace_iteration(q, id)
  for _, state in ipairs({ 'delayed', 'prioritized' }) do
    if redis.call('ZREM', q .. state, id) == 1 then
      purge(q, id)
      return true
    end
  end
  local list = redis.call('HEXISTS', q .. 'meta', 'paused') == 1 and 'paused' or 'wait'
  if redis.call('LREM', q .. list, 1, id) == 0 then return false end
  purge(q, id)
  return true
end
