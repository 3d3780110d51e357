-- A new job's hash and its first events. `job` has the fields of the hash as its own names.
local function store(q, job)
  local fields = {
    'name', job.name, 'data', job.data, 'opts', job.opts, 'timestamp', job.timestamp,
    'delay', text(job.delay), 'priority', text(job.priority),
  }
  local function also(name, value)
    if value and value ~= '' then
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  also('parentKey', job.parent_key)
  also('parent', job.parent_key and job.parent_key ~= '' and job.parent or nil)
  also('rjk', job.scheduler)
  also('deid', job.dedup)
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
