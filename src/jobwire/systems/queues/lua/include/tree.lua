-- Removing a job with its children, which may be in other queues.

local function children_of(key, processed)
  local found = {}
  if processed then
    for _, part in ipairs({ ':processed', ':failed' }) do
      for _, child in ipairs(redis.call('HKEYS', key .. part)) do found[#found + 1] = child end
    end
    for _, child in ipairs(redis.call('ZRANGE', key .. ':unsuccessful', 0, -1)) do
      found[#found + 1] = child
    end
  end
  for _, child in ipairs(redis.call('SMEMBERS', key .. ':dependencies')) do
    found[#found + 1] = child
  end
  return found
end

-- Whether a worker has the job, or one of the children that it still waits for. `seen` ends the
-- search where another program wrote a circle.
local is_locked
is_locked = function(q, id, children, seen)
  local key = q .. id
  if seen[key] then return false end
  seen[key] = true
  if redis.call('EXISTS', key .. ':lock') == 1 then return true end
  if not children then return false end
  for _, child in ipairs(redis.call('SMEMBERS', key .. ':dependencies')) do
    local child_q, child_id = split_key(child)
    if is_locked(child_q, child_id, true, seen) then return true end
  end
  return false
end

local function leave_state(q, id)
  for _, state in ipairs({ 'completed', 'waiting-children', 'delayed', 'failed', 'prioritized' }) do
    if redis.call('ZREM', q .. state, id) == 1 then return state end
  end
  for _, list in ipairs({ 'wait', 'paused', 'active' }) do
    if redis.call('LREM', q .. list, 1, id) == 1 then return list end
  end
  return 'unknown'
end

-- The parent does not wait for the job any more; the last one releases it.
local function leave_parent(key, parent_key)
  if redis.call('SREM', parent_key .. ':dependencies', key) == 0 then return false end
  if redis.call('SCARD', parent_key .. ':dependencies') > 0 then return true end
  local q, id = split_key(parent_key)
  if redis.call('ZREM', q .. 'waiting-children', id) == 1 then
    push(q, id, 0, true)
    emit_waiting(q, false, id, 'waiting-children')
  end
  return true
end

-- `parent_key`: the parent through which the job was found, if any. `how`: `children`, and
-- `unprocessed` for only those that have not ended and are not being run.
local remove_tree
remove_tree = function(q, id, parent_key, how, seen)
  local key = q .. id
  if seen[key] then return end
  seen[key] = true
  if how.unprocessed then
    if redis.call('EXISTS', key .. ':lock') == 1 or is_in(q, 'failed', id) then return end
  end
  parent_key = parent_key or redis.call('HGET', key, 'parentKey')
  if parent_key and parent_key ~= '' and redis.call('EXISTS', parent_key) == 1 then
    leave_parent(key, parent_key)
  end
  if how.children then
    for _, child in ipairs(children_of(key, not how.unprocessed)) do
      local child_q, child_id = split_key(child)
      remove_tree(child_q, child_id, key, how, seen)
    end
  end
  local prev = leave_state(q, id)
  free_dedup(q, id)
  if delete_job(q, id) > 0 then emit_trimmed(q, 'removed', 'jobId', id, 'prev', prev) end
end
