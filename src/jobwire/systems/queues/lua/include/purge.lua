-- Deleting many jobs of a queue at once, for `drain`, `clean`, `obliterate` and schedulers.

-- The last part of a job's key is its id. A scheduler's job has colons in its id and no children.
local function split_key(key)
  local id = string.match(key, '([^:]*)$')
  return string.sub(key, 1, #key - #id), id
end

-- A parent of the same queue goes with its last child; one of another queue is released, without
-- an event, as with the official packages.
local purge_parent
purge_parent = function(q, id)
  local row = redis.call('HMGET', q .. id, 'parentKey', 'deid')
  local parent_key = row[1]
  if not parent_key or parent_key == '' or redis.call('EXISTS', parent_key) == 0 then return end
  if redis.call('SREM', parent_key .. ':dependencies', q .. id) == 0 then return end
  if redis.call('SCARD', parent_key .. ':dependencies') > 0 then return end
  local parent_q, parent_id = split_key(parent_key)
  if redis.call('ZREM', parent_q .. 'waiting-children', parent_id) == 0 then return end
  if parent_q ~= q then
    push(parent_q, parent_id, 0, true)
    return
  end
  purge_parent(q, parent_id)
  delete_job(q, parent_id)
  if row[2] then redis.call('DEL', q .. 'de:' .. row[2]) end
end

-- The deduplication id of a job that is removed is free again.
local function free_dedup(q, id)
  local dedup = redis.call('HGET', q .. id, 'deid')
  if dedup and redis.call('GET', q .. 'de:' .. dedup) == id then
    redis.call('DEL', q .. 'de:' .. dedup, q .. 'dn:' .. dedup)
  end
end

local function purge(q, id)
  purge_parent(q, id)
  free_dedup(q, id)
  delete_job(q, id)
end

-- The pending iteration of a scheduler: removing it would end the scheduler.
local function is_current_iteration(q, id)
  local scheduler = redis.call('HGET', q .. id, 'rjk')
  local due = scheduler and redis.call('ZSCORE', q .. 'repeat', scheduler)
  return due and id == 'repeat:' .. scheduler .. ':' .. text(tonumber(due))
end

local function remove_members(key, ids)
  for at = 1, #ids, 1000 do
    redis.call('ZREM', key, unpack(ids, at, math.min(at + 999, #ids)))
  end
end
