#!lua flags=allow-oom
-- worker_info: a worker's registration, and the jobs that it runs now.
--
-- The worker writes its registration itself; its jobs are read from the queue, so that
-- they are right also for a worker that has just died.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:worker:<consumer>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer, scan_limit
-- RETURNS
--   registration   a flat list: field, value; empty for a foreign worker, or one that is gone
--   running        a flat list: job id, task, tenant, start time
-- CLAUSES J-1 J-39
-- INCLUDE keys queues job entry
local consumer, scan_limit = ARGV[1], ARGV[2]
local running = {}

local function add_running(row)
  local entry = redis.call('XRANGE', queue, row[1], row[1])[1]
  local id = entry and fields_of(entry[2]).job_id
  local job = id and try_read_job(id, 'task', 'tenant', 'started_ts', 'updated_ts')
  if job and job.status == 'running' then
    running[#running + 1] = id
    running[#running + 1] = job.task or ''
    running[#running + 1] = job.tenant or ''
    running[#running + 1] = job.started_ts or job.updated_ts or ''
  end
end

-- A foreign worker does not name its queues.
local names = {}
local registered = redis.pcall('HGET', worker_key(consumer), 'queues')
if type(registered) == 'string' then
  for name in string.gmatch(registered, '%S+') do names[#names + 1] = name end
else
  names = known_queues()
end
for _, name in ipairs(names) do
  select_queue(name)
  local pending = redis.pcall('XPENDING', queue, 'workers', '-', '+', scan_limit, consumer)
  for _, row in ipairs(pending.err and {} or pending) do add_running(row) end
end
return {redis.call('HGETALL', worker_key(consumer)), running}
