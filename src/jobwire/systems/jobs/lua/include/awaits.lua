-- D-8: a job has a record (what it has) and awaits (names that it lacks). Whoever writes the last awaited
-- name of a wait puts the job back into its queue.
--
-- Every job passes scripts with this include, so the functions are made only when one is needed.
local made
local function awaits()
  if made then return made end

  -- D-13: when the keys of a suspended job expire: its due time, and its lifetime or seven days after it.
  local function suspended_expiry(ttl_s, due_ms)
    local lifetime_ms = math.max(expiry_of(ttl_s) - now_ms, 604800000)
    return string.format('%.0f', math.max(tonumber(due_ms), now_ms) + lifetime_ms)
  end

  -- A job of a foreign gateway may have no lifetime.
  local function same_lifetime(key, id)
    local expiry = redis.call('PEXPIRETIME', job_key(id))
    if expiry > 0 then redis.call('PEXPIREAT', key, expiry) end
  end

  -- D-15: the results of some children stay with them: those live as long as their parent.
  local function extend_children(id, expiry)
    local kept = redis.call('HGET', job_key(id), 'kept_children')
    for child in string.gmatch(kept or '', '%S+') do
      if redis.call('PEXPIRETIME', job_key(child)) < tonumber(expiry) then
        redis.call('PEXPIREAT', job_key(child), expiry)
      end
    end
  end

  local function count_records(id)
    redis.call('HSET', job_key(id), 'steps', redis.call('HLEN', steps_key(id)))
  end

  -- D-12: signals that have not come when their wait is due get the time alone: nobody can send them later.
  -- The names are those of a record, or of `awaits`.
  local function end_waits(id, names)
    for _, name in ipairs(names) do
      local signal = string.match(name, '^%d* ?g:(.*)$')
      local due_ms = signal and tonumber(redis.call('HGET', steps_key(id), 't:signal:' .. signal))
      if due_ms and due_ms <= now_ms then redis.call('HSETNX', steps_key(id), 'g:' .. signal, '[' .. now .. ']') end
    end
    count_records(id)
  end

  -- D-9a: whether the job lacks nothing else of a wait with this field, which it has now. The fields of one
  -- wait stand alone, those of several have the number of the wait in front.
  local function ends_wait(id, field)
    local key = awaits_key(id)
    if redis.call('SREM', key, field) == 1 then return redis.call('EXISTS', key) == 0 end
    local found, left = {}, {}
    for _, member in ipairs(redis.call('SMEMBERS', key)) do
      local group, name = string.match(member, '^(%d+) (.*)$')
      if name == field then
        redis.call('SREM', key, member)
        found[#found + 1] = group
      elseif group then
        left[group] = true
      end
    end
    for _, group in ipairs(found) do
      if not left[group] then return true end
    end
    return false
  end

  -- A job that has ended, by whatever program, is not suspended any more.
  local function forget(id)
    redis.call('ZREM', suspended_key, id)
    redis.call('DEL', awaits_key(id))
    redis.pcall('HDEL', job_key(id), 'waits_for')
  end

  -- Put a suspended job back into its queue; false if it is not suspended (any more), so that a repeated
  -- call adds no second entry. Its lifetime is its own again, and is extended at half of it.
  local function wake(id, step)
    if not redis.call('ZSCORE', suspended_key, id) then return false end
    local job, here = try_read_job(id, 'task', 'payload', 'queue'), queue_name
    local expiry = expiry_of(job.ttl_s)
    if job.status == 'queued' then bytes().move(id, expiry) end
    redis.call('ZREM', suspended_key, id)
    redis.call('DEL', awaits_key(id))
    if refused(job) then error(job.err) end
    if job.status ~= 'queued' then return false end
    select_queue(job.queue)
    enqueue(id, job.task, job.payload)
    select_queue(here)
    redis.call('HDEL', job_key(id), 'waits_for')
    update(id)
    extend_ttl(id, expiry, job.idempotency_key)
    extend_children(id, expiry)
    redis.call('ZADD', open_key, renewal_of(expiry), id)
    emit_trimmed(id, expiry, 'queued', step, '{}')
    return true
  end

  -- Record a value from outside: a signal, or the end of a child. The first one counts.
  local function record_outside(id, field, value, step)
    local key = steps_key(id)
    if redis.call('HSETNX', key, field, value) == 0 then return false end
    same_lifetime(key, id)
    count_records(id)
    bytes().grow(id, #value)
    redis.call('HINCRBY', job_key(id), 'outside_bytes', #value)
    if ends_wait(id, field) then wake(id, step) end
    return true
  end

  -- D-15: record how a child ended: a JSON array of the time, its status, and its result or error. Without
  -- the last one it is too large, or the parent has too many bytes, or a foreign worker wrote it, which may
  -- be any text: it stays with the child.
  local max_result_bytes, max_outside_bytes = 262144, 4194304
  local function record_child(child, parent_id, name, is_checked)
    local parent = try_read_job(parent_id, 'outside_bytes', 'kept_children')
    if parent.err or not parent.status or terminal[parent.status] then return end
    -- D-24: a parent that has begun anew has other children, of the same names.
    local made = redis.call('HGET', steps_key(parent_id), 'k:' .. name)
    if not made or cjson.decode(made)[1] ~= child then return end
    local key = job_key(child)
    local status = redis.pcall('HGET', key, 'status')
    if status and status.err then return end
    if not status then
      local err = problem('child_gone', 'the child is gone; its end is not known')
      return record_outside(parent_id, 'c:' .. name, '[' .. now .. ',"error",' .. err .. ']', 'duty.wake')
    end
    if not terminal[status] then return end
    local content = redis.call('HGET', key, status == 'done' and 'result' or 'error') or ''
    local value = '[' .. now .. ',"' .. status .. '"'
    if is_checked and #content <= max_result_bytes
      and (tonumber(parent.outside_bytes) or 0) + #content <= max_outside_bytes then
      value = value .. ',' .. content .. ']'
    else
      value = value .. ']'
      redis.call('HSET', job_key(parent_id), 'kept_children', (parent.kept_children or '') .. child .. ' ')
      extend_children(parent_id, redis.call('PEXPIRETIME', job_key(parent_id)))
    end
    record_outside(parent_id, 'c:' .. name, value, 'duty.wake')
  end

  -- The caller has ended this job, or has found it ended; `is_checked`: its result is JSON.
  local function record_end(id, is_checked)
    local parent = redis.pcall('HGET', job_key(id), 'parent')
    if type(parent) ~= 'string' then return end
    local parent_id, name = string.match(parent, '^(%S+) (.+)$')
    -- What the server refuses to write for the parent does not keep the child from ending: the parent looks
    -- again.
    local here = queue_name
    if parent_id then pcall(record_child, id, parent_id, name, is_checked) end
    select_queue(here)
  end

  -- D-16: whether the parent of a job was canceled: then the job is, too.
  local function is_orphaned(parent)
    local parent_id = string.match(parent, '^(%S+) ')
    return parent_id and redis.pcall('HGET', job_key(parent_id), 'status') == 'canceled'
  end

  made = {
    suspended_expiry = suspended_expiry, extend_children = extend_children, count_records = count_records,
    end_waits = end_waits, forget = forget, wake = wake, record_outside = record_outside, record_child = record_child,
    record_end = record_end, is_orphaned = is_orphaned
  }
  return made
end

function record_end(id, is_checked) awaits().record_end(id, is_checked) end
