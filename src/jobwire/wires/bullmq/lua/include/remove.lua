-- Deleting a job with everything that belongs to it.
local PARTS = { ':logs', ':dependencies', ':processed', ':failed', ':unsuccessful' }

local function delete_job(q, id)
  local keys = { q .. id }
  for at, part in ipairs(PARTS) do keys[at + 1] = q .. id .. part end
  return redis.call('DEL', unpack(keys))
end

-- A job that is deleted before its parent heard of its end must not be waited for.
local function forget_child(q, id)
  local parent = decoded(redis.call('HGET', q .. id, 'parent'))
  if not parent or not parent.queueKey then return end
  local parent_q, parent_id = parent_of(parent)
  if redis.call('SREM', parent_q .. parent_id .. ':dependencies', q .. id) == 1 then
    release_if_last(parent_q, parent_id)
  end
end

local function remove_job(q, id)
  forget_child(q, id)
  return delete_job(q, id)
end
