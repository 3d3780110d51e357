-- Only the owner of a job's lock may move the job. Token '0' asks for no check.
local function check_lock(q, id, token)
  if token == '0' then return 'ok' end
  local owner = redis.call('GET', q .. id .. ':lock')
  if not owner then return 'no_lock' end
  if owner ~= token then return 'foreign_lock' end
  return 'ok'
end

-- Ends an attempt of a job that goes on: nothing is written without the lock. What the attempt leaves
-- in the hash is written before the job is looked for in `active`, as others do it. `move` is the one
-- write that puts the job elsewhere: where the server refuses it, the job stays active and locked, or
-- it would be nowhere.
local function leave_active(q, id, token, fields, move)
  if redis.call('EXISTS', q .. id) == 0 then return 'missing' end
  local found = check_lock(q, id, token)
  if found ~= 'ok' then return found end
  if fields and #fields > 0 then redis.call('HSET', q .. id, unpack(fields)) end
  if redis.call('LREM', q .. 'active', -1, id) == 0 then
    found = 'not_active'
  else
    local fine, raised = pcall(move)
    if not fine then
      redis.call('LPUSH', q .. 'active', id)
      error({ err = error_text(raised) })
    end
  end
  if token ~= '0' then
    redis.call('DEL', q .. id .. ':lock')
    redis.call('SREM', q .. 'stalled', id)
  end
  return found
end
