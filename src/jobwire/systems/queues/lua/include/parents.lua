-- Flows: what a job's end does to its parent, which may be in another queue.

-- The parent's queue prefix and id, from its child's fields; nil if those are corrupt.
local function parent_of(parent)
  if type(parent) ~= 'table' or type(parent.queueKey) ~= 'string' then return nil end
  if type(parent.id) ~= 'string' and type(parent.id) ~= 'number' then return nil end
  return parent.queueKey .. ':', tostring(parent.id)
end

local function is_in(q, state, id) return redis.call('ZSCORE', q .. state, id) end

-- The parent has nothing to wait for any more: it goes to the head of the line.
local function release(q, id)
  local delay_ms = number(redis.call('HGET', q .. id, 'delay')) or 0
  if delay_ms > 0 then
    local due = now + delay_ms
    redis.call('ZADD', q .. 'delayed', text(due * SHIFT), id)
    emit(q, 'delayed', 'jobId', id, 'delay', text(due))
    mark_delayed(q)
    return
  end
  push(q, id, priority_of(q, id), true)
  emit_waiting(q, false, id, 'waiting-children')
end

local function release_waiting(q, id)
  if redis.call('ZREM', q .. 'waiting-children', id) == 1 then release(q, id) end
end

local function release_if_last(q, id)
  if redis.call('SCARD', q .. id .. ':dependencies') == 0 then release_waiting(q, id) end
end

-- The parent itself fails, once a worker picks it up: the failure is noted in `defa`.
local function fail_parent(q, id, child)
  redis.call('ZADD', q .. id .. ':unsuccessful', text(now), child)
  local reason = 'child ' .. child .. ' failed'
  if redis.call('ZREM', q .. 'waiting-children', id) == 1 then
    redis.call('HSET', q .. id, 'defa', reason)
    release(q, id)
  elseif redis.call('ZREM', q .. 'delayed', id) == 1 then
    redis.call('HSET', q .. id, 'delay', 0, 'defa', reason)
    release(q, id)
  elseif not is_in(q, 'failed', id) then
    redis.call('HSET', q .. id, 'defa', reason)
  end
end

local function child_ended(child, parent, target, value)
  local q, id = parent_of(parent)
  if not q then return end
  local dependencies = q .. id .. ':dependencies'
  if target == 'completed' then
    if redis.call('SREM', dependencies, child) == 1 then
      redis.call('HSET', q .. id .. ':processed', child, value)
      release_if_last(q, id)
    end
  elseif parent.fpof then
    if redis.call('SREM', dependencies, child) == 1 then fail_parent(q, id, child) end
  elseif parent.cpof or parent.idof then
    if redis.call('SREM', dependencies, child) == 1 then
      redis.call('HSET', q .. id .. ':failed', child, value)
      if parent.cpof then release_waiting(q, id) else release_if_last(q, id) end
    end
  elseif parent.rdof then
    if redis.call('SREM', dependencies, child) == 1 then release_if_last(q, id) end
  end
end
