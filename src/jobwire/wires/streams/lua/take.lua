#!lua flags=allow-oom
-- take: start as many waiting jobs as there are free slots.
--
-- Reading an entry and starting its job is one step: no crash leaves a job that
-- was read and not started. First come the entries that a blocking read has
-- brought, then the line. What must not run is cleared away on the way.
--
-- Sent right behind a blocking read, on the same socket, it runs before the reader
-- has seen what came: `after` is the last entry that the reader knew when it sent this.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>,
-- jobs:delayed, jobs:open, jobs:index[:<tenant>], jobs:tenants, jobs:worker:<consumer>,
-- jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, limit, token, ours, grace_ms, foreign_ms, after, tasks
--   ...   the tasks; then for each entry that a read has brought: entry, job id, task
-- RETURNS
--   started   a list of jobs, each: entry, id, task, payload, token, attempt, deliveries, created_ts; and, where the job has extras: max_attempts, timeout_s, tenant, traceparent
--   dropped   a flat list: why, entry, id
-- CLAUSES J-5 J-9 J-30 J-31 J-37 J-38
-- INCLUDE keys state fence entry start
local consumer, limit, token, ours = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local grace_ms, foreign_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local after, tasks = ARGV[9], tonumber(ARGV[10])
local known = {}
for at = 11, 10 + tasks do known[ARGV[at]] = true end

local function anyone_has(task)
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', queue, 'workers')) do
    local one = fields_of(row)
    local name = one.name
    -- The tasks of a foreign worker are not known. Its name outlives it, so it counts while active.
    if string.sub(name, 1, #ours) ~= ours and one.idle < foreign_ms then return true end
    if redis.call('HEXISTS', worker_key(name), 'task:' .. task) == 1 then return true end
  end
  return false
end

-- J-37: a group cannot choose, so what we lack goes back, each time for twice as long. A job that
-- has run since it was last put back begins anew.
local function put_back(entry, id, task, row)
  local expiry, seen = row[2], redis.call('HMGET', job_key(id), 'unknown_ts', 'updated_ts')
  local since = tonumber(seen[1])
  if since and since < (tonumber(seen[2]) or 0) then since = nil end
  local waited_ms = now_ms - (since or now_ms)
  if since and waited_ms >= grace_ms and not anyone_has(task) then
    local err = problem('unknown_task', 'no worker has this task', row[6])
    finish(id, expiry, 'error', '', err, 'worker.start', err)
    extend_key(row[13], expiry)
    disown(id)
    return drop('unknown', entry, id)
  end
  if not since then redis.call('HSET', job_key(id), 'unknown_ts', now) end
  redis.call('HDEL', job_key(id), 'entry_id')
  extend_ttl(id, expiry, row[13])
  redis.call('ZADD', delayed_key, now_ms + math.min(5000, math.max(250, waited_ms)), id)
  clear(entry)
end

-- Whether this delivery has been started: tokens end with the entry that they were made for.
local function is_started(entry, row)
  return row[1] == 'running' and row[5] and string.sub(row[5], -#entry - 1) == '-' .. entry
end

local function try(entry, id, task, payload, read_before)
  local row = runnable(entry, id)
  if not row then return end
  -- R-5: another call of ours has started it, and that call's answer hands it out.
  if read_before and is_started(entry, row) then return end
  if tasks > 0 and not known[task or ''] then return put_back(entry, id, task or '', row) end
  start(entry, id, task, payload, row, token, consumer)
end

-- A group's reads only go forward: what came lies behind everything known.
if after ~= '' then
  local pending = redis.pcall('XPENDING', queue, 'workers', '(' .. after, '+', 1, consumer)
  local entry = pending[1] and pending[1][1]
  local rows = entry and redis.call('XRANGE', queue, entry, entry) or {}
  if rows[1] then
    local found = fields_of(rows[1][2])
    attend(try, entry, found.job_id, found.task, found.payload, true)
  end
end

for at = 11 + tasks, #ARGV, 3 do
  -- Somebody may have taken it over since the blocking read brought it. Its lease begins now.
  if holder_of(ARGV[at]) == consumer
    and redis.call('XCLAIM', queue, 'workers', consumer, 0, ARGV[at], 'JUSTID')[1] then
    attend(try, ARGV[at], ARGV[at + 1], ARGV[at + 2], false, true)
  end
end

-- Three rounds at most: what is cleared away leaves slots free, and no call may go on for ever.
for _ = 1, 3 do
  local room = limit - #started
  if room <= 0 then break end
  local reply = redis.pcall('XREADGROUP', 'GROUP', 'workers', consumer,
    'COUNT', room, 'STREAMS', queue, '>')
  if reply and reply.err then
    if string.sub(reply.err, 1, 7) ~= 'NOGROUP' then return reply end
    redis.call('XGROUP', 'CREATE', queue, 'workers', '0', 'MKSTREAM')
    reply = redis.call('XREADGROUP', 'GROUP', 'workers', consumer,
      'COUNT', room, 'STREAMS', queue, '>')
  end
  local rows = reply and reply[1] and reply[1][2] or {}
  for _, row in ipairs(rows) do
    local flat = row[2]
    if flat[1] == 'job_id' and flat[3] == 'task' and flat[5] == 'payload' then
      attend(try, row[1], flat[2], flat[4], flat[6])
    else
      local found = fields_of(flat)
      attend(try, row[1], found.job_id, found.task, found.payload)
    end
  end
  if #rows < room then break end
end
tidy()
return {started, dropped}
