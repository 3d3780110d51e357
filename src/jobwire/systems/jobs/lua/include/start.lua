-- J-30, J-31: start the job of an entry that is pending under this consumer, or remove the entry
-- where nothing can be started. `started` and `dropped` are the answer of the script.
local started, dropped = {}, {}

local function note_dropped(reason, entry, id)
  dropped[#dropped + 1] = reason
  dropped[#dropped + 1] = entry .. queue_suffix
  dropped[#dropped + 1] = id or ''
end

local function drop(reason, entry, id)
  clear(entry)
  note_dropped(reason, entry, id)
end

-- An entry whose job the server refuses to start stays pending here; recover_orphans finds it.
local function try_start(act, entry, id, ...)
  if isolated(act, entry, id, ...) == 'refused' then note_dropped('refused', entry, id) end
end

-- J-53: whether no job of the selected queue may be started.
local paused
local function is_paused()
  if not paused then
    paused = {}
    local names = redis.pcall('SMEMBERS', paused_key)
    for _, name in ipairs(names.err and {} or names) do paused[name] = true end
  end
  return paused[queue_name]
end

-- Whether the entry that a job names as its own exists, in the job's own queue.
local function has_entry(job)
  local id, entry, here = job.id, job.entry_id, queue_name
  if redis.call('ZSCORE', delayed_key, id) or redis.call('ZSCORE', suspended_key, id) then return true end
  select_queue(job.queue)
  local rows = redis.pcall('XRANGE', queue, entry, entry)
  local exists = holder_of(entry) ~= nil
    or not rows.err and rows[1] ~= nil and fields_of(rows[1][2]).job_id == id
  select_queue(here)
  return exists
end

-- The fields of a job that is to start. A waiting job with ten fields (in a named queue: eleven) has
-- the nine of the contract, its entry and its queue: reading the extras, which is what costs, is saved.
local function read_startable(id)
  local key, is_named = job_key(id), queue_suffix ~= ''
  if redis.pcall('HLEN', key) == (is_named and 11 or 10) then
    local values = is_named
      and redis.call('HMGET', key, 'status', 'ttl_s', 'entry_id', 'created_ts', 'deliveries', 'queue')
      or redis.call('HMGET', key, 'status', 'ttl_s', 'entry_id', 'created_ts', 'deliveries')
    local status, entry_id, deliveries = values[1], values[3], values[5]
    -- A delivered job has extras, also where a foreign gateway wrote fewer than nine fields.
    if status and entry_id and not deliveries and (not is_named or values[6]) then
      return {
        id = id, status = status, ttl_s = values[2], entry_id = entry_id, created_ts = values[4],
        attempt = 1, deliveries = 0, queue = is_named and values[6]
      }
    end
  end
  return try_read_job(id, 'entry_id', 'cancel_ts', 'attempt', 'deliveries', 'created_ts',
    'max_attempts', 'timeout_s', 'tenant', 'traceparent', 'queue', 'steps', 'parent', 'reports', 'deadline_s')
end

-- The job of an entry if it may run: the entry counts, and the job has neither ended nor expired.
-- Sets `expiry`, and makes `attempt` and `deliveries` numbers.
local function read_runnable(entry, id)
  if not id then return drop('malformed', entry) end
  local job = read_startable(id)
  if refused(job) then return note_dropped('refused', entry, id) end
  if job.err then return drop('wrong_type', entry, id) end
  if not job.status then
    if redis.call('EXISTS', job_key(id)) == 0 then return drop('gone', entry, id) end
    job.status = 'queued'
  end
  if terminal[job.status] then return drop('ended', entry, id) end
  if job.entry_id and job.entry_id ~= ''
    and (job.entry_id ~= entry or (job.queue or 'default') ~= queue_name) then
    if has_entry(job) then return drop('duplicate', entry, id) end
    job.entry_id = false
  end
  job.expiry = expiry_of(job.ttl_s)
  job.attempt = tonumber(job.attempt) or 1
  job.is_indexed = job.deliveries == '0'
  job.deliveries = tonumber(job.deliveries) or 0
  if job.cancel_ts or job.parent and awaits().is_orphaned(job.parent) then
    finish_canceled(id, job.expiry, job.attempt, 'worker.start')
    clear_owner(id)
    return drop('canceled', entry, id)
  end
  return job
end

-- The extras follow where they were read: then each is a text or false.
local function add_started(entry, job, task, payload, token)
  local row = {
    entry .. queue_suffix, job.id, task or '', payload or '', token, job.attempt, job.deliveries, job.created_ts or ''
  }
  if job.tenant ~= nil then
    row[9], row[10], row[11], row[12] = job.max_attempts, job.timeout_s, job.tenant, job.traceparent
    -- D-3: the worker reads the record of such a job before it calls the handler.
    local left_ms = ms_left(job)
    if job.steps or job.parent or job.reports or left_ms then
      row[13], row[14], row[15] = job.steps, job.parent, job.reports
      if left_ms then row[16] = string.format('%.0f', left_ms) end
    end
  end
  started[#started + 1] = row
end

-- Add a job to its tenant's index; whether it is new there. Our gateways index at submission, so a
-- new one was submitted by a foreign gateway.
local function index(id, created_ts, tenant)
  -- Whole milliseconds: the cursors of lists have them.
  local created_ms = tonumber(created_ts)
  if not (created_ms and created_ms >= 0 and created_ms < 9007199254740992) then created_ms = now_ms end
  local added = redis.pcall('ZADD', index_key(tenant), 'NX', math.floor(created_ms), id)
  if tenant and tenant ~= '' then redis.pcall('ZADD', tenants_key, now_ms, tenant) end
  if added ~= 1 then return false end
  count('submissions')
  return true
end

-- J-39: index a foreign gateway's job and extend its keys from now on: most of their lifetime may
-- have passed.
local function index_open(entry, id, expiry, created_ts, tenant)
  extend_ttl(id, expiry)
  redis.pcall('ZADD', open_key, 'NX', renewal_of(expiry), id)
  index(id, created_ts, tenant)
  -- With `deliveries`, the start extends the keys once more: the events may not exist yet.
  redis.call('HSET', job_key(id), 'entry_id', entry)
  redis.call('HSETNX', job_key(id), 'deliveries', 0)
  if queue_suffix ~= '' then redis.call('HSET', job_key(id), 'queue', queue_name) end
end

-- Return an entry that was read and must not be started here to the end of its queue: nothing is
-- counted, and no event is written.
local function return_unstarted(entry, job)
  if not job.entry_id or job.entry_id == '' then
    index_open(entry, job.id, job.expiry, job.created_ts, job.tenant)
  end
  enqueue(job.id, content_of(entry, job.id))
  drop('returned', entry, job.id)
end

-- The owner token is the call's token and the entry: deliveries of one call differ by their entries.
local first_attempt = '{"attempt":1}'
local function start(entry, job, task, payload, call_token, consumer)
  local id, expiry, attempt = job.id, job.expiry, job.attempt
  local token = call_token .. '-' .. entry .. queue_suffix
  local deliveries = job.deliveries + 1
  job.deliveries = deliveries
  -- Most jobs start soon after our gateway created them: their keys have just got their lifetime.
  local is_foreign = not job.entry_id or job.entry_id == ''
  local is_extended = deliveries > 1 or is_foreign or job.is_indexed or not is_fresh(job.created_ts, expiry)
  update(id, is_extended and expiry, 'status', 'running', 'owner', token, 'worker', consumer,
    'deliveries', deliveries, 'started_ts', now)
  if is_extended then extend_key(job.idempotency_key, expiry) end
  -- The entry's id is the time at which the job was queued.
  if deliveries == 1 then count_since('latency:', string.match(entry, '^%d+')) end
  if is_foreign then index_open(entry, id, expiry, job.created_ts, job.tenant) end
  emit(id, is_extended and expiry, 'running', 'worker.start',
    attempt == 1 and first_attempt or '{"attempt":' .. attempt .. '}')
  add_started(entry, job, task, payload, token)
end
