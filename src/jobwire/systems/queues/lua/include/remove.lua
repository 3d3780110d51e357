-- Deleting a job with everything that belongs to it.
local PARTS = { ':logs', ':dependencies', ':processed', ':failed', ':unsuccessful' }

local function delete_job(q, id)
  local keys = { q .. id }
  for at, part in ipairs(PARTS) do keys[at + 1] = q .. id .. part end
  return redis.call('DEL', unpack(keys))
end

-- A job that is deleted before its end reached its parent must not be waited for. The parent goes
-- to the head of `wait` whatever its priority and delay, as with the official packages.
local function forget_child(q, id)
  local parent = decoded(redis.call('HGET', q .. id, 'parent'))
  local parent_q, parent_id = parent_of(parent)
  if not parent_q then return end
  local dependencies = parent_q .. parent_id .. ':dependencies'
  if redis.call('SREM', dependencies, q .. id) == 0 then return end
  if redis.call('SCARD', dependencies) > 0 then return end
  if redis.call('ZREM', parent_q .. 'waiting-children', parent_id) == 0 then return end
  push(parent_q, parent_id, 0, true)
  emit_waiting(parent_q, false, parent_id, 'waiting-children')
end

local function remove_job(q, id)
  forget_child(q, id)
  return delete_job(q, id)
end
