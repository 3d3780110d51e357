-- A new job's hash and its first events. `job` has the fields of the hash as its own names.
local function given(value) return value and value ~= '' end

local function store(q, job)
  local fields = {
    'name', job.name, 'data', job.data, 'opts', job.opts, 'timestamp', job.timestamp,
    'delay', text(job.delay), 'priority', text(job.priority),
  }
  local at = 13
  local function also(name, value)
    fields[at], fields[at + 1] = name, value
    at = at + 2
  end
  if given(job.parent_key) then
    also('parentKey', job.parent_key)
    if given(job.parent) then also('parent', job.parent) end
  end
  if given(job.scheduler) then also('rjk', job.scheduler) end
  if given(job.dedup) then also('deid', job.dedup) end
  if extras then also('progress', '0') end
  redis.call('HSET', q .. job.id, unpack(fields))
  emit(q, 'added', 'jobId', job.id, 'name', job.name)
end

local function enqueue(q, job)
  if job.delay > 0 then
    delay(q, job.id, job.delay)
    mark_delayed(q)
  else
    push(q, job.id, job.priority, job.lifo)
    emit_waiting(q, true, job.id)
  end
end
