#!lua flags=allow-oom
-- recover_orphans: start or return what is pending under this worker's name and unknown to it.
--
-- A start whose reply was lost is returned again, unchanged; an entry that was read and
-- not started is started now. A job that has reported was begun, and a failover has lost its
-- end: it is started again, since its next reports would count as written under this token.
-- A broken connection costs no lease time, and what is returned has its whole lease left. With
-- idle_ms only entries that were not renewed for that long: no reclaim of a worker takes its own
-- entries.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps,
-- idempotency:<name>, jobs:open, jobs:index[:<tenant>], jobs:tenants, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, limit, token, idle_ms
--   leaving   1: the worker stops and releases all of it, so nothing is started again
--   queues    their number
--   ...   its queues; then what the worker knows: tokens, and entries that it has read and not
--         started yet
-- RETURNS
--   started   as in take
--   dropped   as in take
-- CLAUSES G-26 J-9 J-30
-- INCLUDE keys job state bytes fence entry awaits start
local consumer, limit, token, idle_ms = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local leaving, queues = ARGV[7] == '1', tonumber(ARGV[8])
local known = {}
for at = 9 + queues, #ARGV do known[ARGV[at]] = true end

local function has_reported(id, owner)
  local reports = redis.call('HGET', job_key(id), 'reports')
  return reports and string.sub(reports, 1, #owner + 1) == owner .. ':'
end

local function recover(entry, id, task, payload)
  local owner = id and redis.pcall('HGET', job_key(id), 'owner')
  if type(owner) == 'string' and known[owner] then return end
  local job = read_runnable(entry, id)
  if not job then return end
  redis.call('XCLAIM', queue, 'workers', consumer, 0, entry, 'JUSTID')
  if job.status == 'running' and owner and owner ~= '' and job.entry_id == entry
    and (leaving or not has_reported(id, owner)) then
    add_started(entry, job, task, payload, owner)
  elseif is_paused() then
    return_unstarted(entry, job)
  else
    start(entry, job, task, payload, token, consumer)
  end
end

for at = 9, 8 + queues do
  select_queue(ARGV[at])
  local pending = redis.pcall('XPENDING', queue, 'workers', 'IDLE', idle_ms, '-', '+',
    limit + #ARGV, consumer)
  for _, row in ipairs(pending.err and {} or pending) do
    local entry = row[1]
    if not known[entry .. queue_suffix] and #started < limit then
      local rows = redis.call('XRANGE', queue, entry, entry)
      if not rows[1] then
        clear(entry)
      else
        local found = fields_of(rows[1][2])
        try_start(recover, entry, found.job_id, found.task, found.payload)
      end
    end
  end
end
flush()
return {started, dropped}
