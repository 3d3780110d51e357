#!lua flags=allow-oom
-- take: start as many waiting jobs as there are free slots.
--
-- Reading an entry and starting its job is one step: no crash leaves a job that
-- was read and not started. Entries that a blocking read has fetched come first, then the
-- queues. Entries whose jobs must not run are removed. Fetched entries beyond the limit, and those
-- of a paused queue, are returned to their queue.
--
-- Sent right behind a blocking read on the same socket, it runs before the reader has
-- seen the fetched entries: `after` is the last entry of a queue that the reader knew when it sent this.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, idempotency:<name>,
-- jobs:delayed, jobs:open, jobs:index[:<tenant>], jobs:tenants, jobs:worker:<consumer>,
-- jobs:queues, jobs:paused, jobs:tasks, jobs:stats:<minute>, jobs:failures:<hour>[:<tenant>],
-- jobs:bytes:<tenant>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, limit, token, ours, grace_ms, foreign_ms, tasks, queues, limited
--   ...   the tasks; for each task that is limited: its name and how many of its jobs may be started;
--         for each queue: its name, after, and how many of its jobs may be started or an empty text;
--         then for each entry that a read has fetched: entry, job id, task; before those of another
--         queue than the default one: an empty text, its name, an empty text
-- RETURNS
--   started   a list of jobs, each: entry, id, task, payload, token, attempt, deliveries, created_ts; and, where the job has extras: max_attempts, timeout_s, tenant, traceparent; and, where it has records, a parent, reports of an earlier run or a deadline: steps, parent, reports, how many ms are left
--   dropped   a flat list: reason, entry, id
--   paused    where some of the queues are paused: a list of those
-- CLAUSES J-5 J-9 J-30 J-31 J-37 J-38 J-53
-- INCLUDE keys job state bytes failures fence entry awaits start
local consumer, limit, token, ours = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local grace_ms, foreign_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local tasks, queues, limited = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local known, room, queue_room = {}, {}, {}
for at = 12, 11 + tasks do known[ARGV[at]] = true end
local first_queue = 12 + tasks + 2 * limited
for at = 12 + tasks, first_queue - 2, 2 do room[ARGV[at]] = tonumber(ARGV[at + 1]) end
local last_queue = first_queue + 3 * (queues - 1)
for at = first_queue, last_queue, 3 do queue_room[ARGV[at]] = tonumber(ARGV[at + 2]) end

local function has_worker(task)
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', queue, 'workers')) do
    local info = fields_of(row)
    local name = info.name
    -- The tasks of a foreign worker are not known. Its name outlives it, so it counts while active.
    if string.sub(name, 1, #ours) ~= ours and info.idle < foreign_ms then return true end
    if redis.call('HEXISTS', worker_key(name), 'task:' .. task) == 1 then return true end
  end
  return false
end

-- J-37: a consumer group cannot select by task, so a job whose task this worker does not have, or whose
-- handler is at its limit, is delayed, each time for twice as long. Without a worker that has the task it
-- ends, if grace_ms is not negative. A job that has run since it was last delayed begins anew.
local function put_back(entry, job, task)
  local id, expiry = job.id, job.expiry
  local times = redis.call('HMGET', job_key(id), 'unknown_ts', 'updated_ts')
  local since_ms, updated_ms = tonumber(times[1]), tonumber(times[2]) or 0
  if since_ms and since_ms < updated_ms then since_ms = nil end
  local waited_ms = now_ms - (since_ms or now_ms)
  if since_ms and grace_ms >= 0 and waited_ms >= grace_ms and not room[task] and not has_worker(task) then
    local err = problem('unknown_task', 'no worker has this task', job.attempt)
    finish(id, expiry, 'error', '', err, 'worker.start', err)
    extend_key(job.idempotency_key, expiry)
    clear_owner(id)
    return drop('unknown', entry, id)
  end
  if not since_ms then redis.call('HSET', job_key(id), 'unknown_ts', now) end
  if queue_suffix ~= '' then redis.call('HSET', job_key(id), 'queue', queue_name) end
  redis.call('HDEL', job_key(id), 'entry_id')
  extend_ttl(id, expiry, job.idempotency_key)
  redis.call('ZADD', delayed_key, now_ms + math.min(5000, math.max(250, waited_ms)), id)
  clear(entry)
end

-- Whether this delivery has been started: an owner token ends with its entry.
local function is_started(entry, job)
  return job.status == 'running' and job.owner and string.sub(job.owner, -#entry - 1) == '-' .. entry
end

local function take(entry, id, task, payload, is_fetched)
  local job = read_runnable(entry, id)
  if not job then return end
  -- R-5: another call of this worker has started it, and the answer to that call has it.
  if is_fetched then
    if is_started(entry .. queue_suffix, job) then return end
    if #started >= limit or is_paused() then return return_unstarted(entry, job) end
  end
  local left = room[task]
  if left == 0 or tasks > 0 and not known[task or ''] then return put_back(entry, job, task or '') end
  if left then room[task] = left - 1 end
  if queue_room[queue_name] then queue_room[queue_name] = queue_room[queue_name] - 1 end
  start(entry, job, task, payload, token, consumer)
end

-- Reads of a group only go forward: a fetched entry lies behind every entry that is known.
for at = first_queue, last_queue, 3 do
  local after = ARGV[at + 1]
  if after ~= '' then
    select_queue(ARGV[at])
    local pending = redis.pcall('XPENDING', queue, 'workers', '(' .. after, '+', 1, consumer)
    local entry = pending[1] and pending[1][1]
    local rows = entry and redis.call('XRANGE', queue, entry, entry) or {}
    if rows[1] then
      local found = fields_of(rows[1][2])
      try_start(take, entry, found.job_id, found.task, found.payload, true)
    end
  end
end

select_queue('default')
for at = last_queue + 3, #ARGV, 3 do
  if ARGV[at] == '' then
    select_queue(ARGV[at + 1])
  -- Another worker may have reclaimed the entry since it was fetched. Its lease begins now.
  elseif holder_of(ARGV[at]) == consumer
    and redis.call('XCLAIM', queue, 'workers', consumer, 0, ARGV[at], 'JUSTID')[1] then
    try_start(take, ARGV[at], ARGV[at + 1], ARGV[at + 2], false, true)
  end
end

-- Three rounds at most: removed entries leave slots free, and every call is bounded. Returns an error
-- of the server.
local function read_queue()
  for _ = 1, 3 do
    local free = math.min(limit - #started, queue_room[queue_name] or limit)
    if free <= 0 then break end
    local reply = redis.pcall('XREADGROUP', 'GROUP', 'workers', consumer,
      'COUNT', free, 'STREAMS', queue, '>')
    if reply and reply.err then
      if string.sub(reply.err, 1, 7) ~= 'NOGROUP' then return reply end
      redis.call('XGROUP', 'CREATE', queue, 'workers', '0', 'MKSTREAM')
      reply = redis.call('XREADGROUP', 'GROUP', 'workers', consumer,
        'COUNT', free, 'STREAMS', queue, '>')
    end
    local rows = reply and reply[1] and reply[1][2] or {}
    for _, row in ipairs(rows) do
      local flat = row[2]
      if flat[1] == 'job_id' and flat[3] == 'task' and flat[5] == 'payload' then
        try_start(take, row[1], flat[2], flat[4], flat[6])
      else
        local found = fields_of(flat)
        try_start(take, row[1], found.job_id, found.task, found.payload)
      end
    end
    if #rows < free then break end
  end
end

local found_paused
for at = first_queue, last_queue, 3 do
  select_queue(ARGV[at])
  if is_paused() then
    found_paused = found_paused or {}
    found_paused[#found_paused + 1] = queue_name
  else
    local failure = read_queue()
    -- Jobs of other queues that were started are answered; the next call meets the failure again.
    if failure and #started == 0 then
      flush()
      return failure
    end
  end
end
flush()
return {started, dropped, found_paused}
