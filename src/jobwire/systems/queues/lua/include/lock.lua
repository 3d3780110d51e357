-- Only the owner of a job's lock may move the job. Token '0' asks for no check.
local function check_lock(q, id, token)
  if token == '0' then return 'ok' end
  local owner = redis.call('GET', q .. id .. ':lock')
  if not owner then return 'no_lock' end
  if owner ~= token then return 'foreign_lock' end
  return 'ok'
end

local function unlock(q, id, token)
  local found = check_lock(q, id, token)
  if found ~= 'ok' or token == '0' then return found end
  redis.call('DEL', q .. id .. ':lock')
  redis.call('SREM', q .. 'stalled', id)
  return 'ok'
end

-- The beginning of each verb that ends an attempt: nothing is written without the lock. What the
-- attempt leaves in the hash is written before the job is looked for in `active`, as others do it.
local function leave_active(q, id, token, fields)
  if redis.call('EXISTS', q .. id) == 0 then return 'missing' end
  local found = unlock(q, id, token)
  if found ~= 'ok' then return found end
  if fields and #fields > 0 then redis.call('HSET', q .. id, unpack(fields)) end
  if redis.call('LREM', q .. 'active', -1, id) == 0 then return 'not_active' end
  return 'ok'
end
