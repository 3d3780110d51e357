-- Every key is built here, below the prefix of the one declared key. A hash tag in that prefix keeps
-- all keys in one slot of a cluster.
local queue = KEYS[1]
local default_queue = queue
local prefix = string.sub(queue, 1, -(#'jobs:stream' + 1))
local delayed_key = prefix .. 'jobs:delayed'
local suspended_key = prefix .. 'jobs:suspended'
local open_key = prefix .. 'jobs:open'
local tenants_key = prefix .. 'jobs:tenants'
local tasks_key = prefix .. 'jobs:tasks'
local clock_key = prefix .. 'jobs:clock'
local queues_key = prefix .. 'jobs:queues'
local paused_key = prefix .. 'jobs:paused'
local control = prefix .. 'jobs:control'
local shards_key = prefix .. 'jobs:shards'

-- J-53: `queue` is the stream of the queue that a script works on, the default queue at first. Entry
-- ids of two streams may be equal: with `queue_suffix` an entry is unique among all queues.
local queue_name, queue_suffix = 'default', ''
local function select_queue(name)
  if not name or name == '' then name = 'default' end
  if name == queue_name then return end
  if name == 'default' then
    queue, queue_name, queue_suffix = default_queue, name, ''
  else
    queue, queue_name, queue_suffix = default_queue .. ':' .. name, name, '@' .. name
  end
end

-- A script needs the keys of one job several times in a row: building them once saves garbage.
local last_id, last_job, last_events
local function job_key(id)
  if id ~= last_id then last_id, last_job, last_events = id, prefix .. 'job:' .. id, nil end
  return last_job
end
local function events_key(id)
  local job = job_key(id)
  if not last_events then last_events = job .. ':events' end
  return last_events
end
-- D-1: the record of a job: results of its steps, and what it waits for.
local function steps_key(id) return job_key(id) .. ':steps' end
-- D-8: the names that a suspended job lacks.
local function awaits_key(id) return job_key(id) .. ':awaits' end
local function stub_key(id) return job_key(id) .. ':stub' end
-- J-11: the default tenant, other tenants and cron each have a prefix of their own. A name without one
-- is a caller's text that an earlier version stored: it must not reach any other key.
local function idempotency_key(name)
  if string.sub(name, 1, 12) == 'idempotency:' or string.sub(name, 1, 17) == 'jobs:idempotency:'
    or string.sub(name, 1, 14) == 'jobs:cron-run:' then
    return prefix .. name
  end
  return prefix .. 'idempotency:' .. name
end
local function worker_key(consumer) return prefix .. 'jobs:worker:' .. consumer end
local function guard_key(task) return prefix .. 'jobs:guard:' .. task end
local function cron_key(name) return prefix .. 'jobs:cron:' .. name end
local function cron_job_key(name) return prefix .. 'jobs:cron-job:' .. name end
local paused_crons_key = prefix .. 'jobs:cron-paused'
local crons_key = prefix .. 'jobs:crons'
local function stats_key(minute) return prefix .. string.format('jobs:stats:%.0f', minute) end
local function failures_key(hour, tenant)
  local key = prefix .. string.format('jobs:failures:%.0f', hour)
  return tenant and tenant ~= '' and key .. ':' .. tenant or key
end
local function index_key(tenant)
  if tenant and tenant ~= '' then return prefix .. 'jobs:index:' .. tenant end
  return prefix .. 'jobs:index'
end
local function bytes_key(tenant)
  return prefix .. 'jobs:bytes:' .. (tenant ~= '' and tenant or 'default')
end
