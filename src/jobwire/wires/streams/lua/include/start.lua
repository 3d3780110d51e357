-- J-30, J-31: start the job of an entry that is pending under our consumer, or clear the entry
-- away where there is nothing to start. `started` and `dropped` are what the verb answers.
local started, dropped = {}, {}

local function note(why, entry, id)
  dropped[#dropped + 1] = why
  dropped[#dropped + 1] = entry
  dropped[#dropped + 1] = id or ''
end

local function drop(why, entry, id)
  clear(entry)
  note(why, entry, id)
end

-- An entry whose job the server refuses to start stays pending under our name; adopt finds it.
local function attend(act, entry, id, ...)
  if apart(act, entry, id, ...) == 'refused' then note('refused', entry, id) end
end

-- Whether the entry that a job names as its own is really there.
local function has_place(id, entry)
  if redis.call('ZSCORE', delayed_key, id) or holder_of(entry) then return true end
  local rows = redis.pcall('XRANGE', queue, entry, entry)
  return not rows.err and rows[1] ~= nil and fields_of(rows[1][2]).job_id == id
end

-- What is known of a job, as one row. Most jobs that wait have the nine fields of the contract and
-- their entry: then there are no extras to ask for, and asking is what costs.
local function look_up(id)
  local job = job_key(id)
  if redis.pcall('HLEN', job) == 10 then
    local plain = redis.call('HMGET', job, 'status', 'ttl_s', 'entry_id', 'created_ts', 'deliveries')
    -- One that was delivered has extras, however little a stranger wrote of the nine.
    if plain[1] and plain[3] and not plain[5] then
      return {plain[1], plain[2], plain[3], false, false, 1, 0, plain[4] or ''}
    end
  end
  return redis.pcall('HMGET', job,
    'status', 'ttl_s', 'entry_id', 'cancel_ts', 'owner',
    'attempt', 'deliveries', 'created_ts', 'max_attempts', 'timeout_s', 'tenant', 'traceparent',
    'idempotency_key')
end

-- The job of an entry as one row, if it may run: the entry counts, the job has neither ended nor
-- gone. From the sixth field to the twelfth the row is what the verb answers; `answer` fills in
-- the rest.
local function runnable(entry, id)
  if not id then return drop('garbage', entry) end
  local row = look_up(id)
  if refused(row) then return note('refused', entry, id) end
  if row.err then return drop('broken', entry, id) end
  if not row[1] then
    if redis.call('EXISTS', job_key(id)) == 0 then return drop('gone', entry, id) end
    row[1] = 'queued'
  end
  if terminal[row[1]] then return drop('ended', entry, id) end
  if row[3] and row[3] ~= '' and row[3] ~= entry then
    if has_place(id, row[3]) then return drop('duplicate', entry, id) end
    row[3] = false
  end
  row[2] = expiry_of(row[2])
  row[6] = tonumber(row[6]) or 1
  row[7] = tonumber(row[7]) or 0
  if row[4] then
    finish_canceled(id, row[2], row[6], 'worker.start')
    disown(id)
    return drop('canceled', entry, id)
  end
  return row
end

local function answer(entry, id, task, payload, row, token)
  row[1], row[2], row[3], row[4], row[5] = entry, id, task or '', payload or '', token
  row[13] = nil
  started[#started + 1] = row
end

-- Add a job to its tenant's list; whether it is new there. Ours are in it from the beginning, so a
-- new one was submitted by a foreign gateway.
local function index(id, created_ts, tenant)
  local added = redis.pcall('ZADD', index_key(tenant), 'NX', tonumber(created_ts) or now_ms, id)
  if tenant and tenant ~= '' then redis.pcall('ZADD', tenants_key, now_ms, tenant) end
  if added ~= 1 then return false end
  count('submissions')
  return true
end

-- J-39: a foreign gateway's job is indexed, and its keys are renewed from now on; most of their
-- life may have passed already.
local function take_in(entry, id, expiry, created_ts, tenant)
  extend_ttl(id, expiry)
  redis.pcall('ZADD', open_key, 'NX', renewal_of(expiry), id)
  index(id, created_ts, tenant)
  redis.call('HSET', job_key(id), 'entry_id', entry)
end

-- Starts of one call differ by their entries: `call` .. entry is the token of this one.
local first_attempt = '{"attempt":1}'
local function start(entry, id, task, payload, row, call, consumer)
  local expiry, token = row[2], call .. '-' .. entry
  row[7] = row[7] + 1
  update(id, expiry, 'status', 'running', 'owner', token, 'worker', consumer,
    'deliveries', row[7], 'started_ts', now)
  extend_key(row[13], expiry)
  -- An entry's id is the time at which it took its place in line.
  if row[7] == 1 then count_since('latency:', string.match(entry, '^%d+')) end
  if not row[3] or row[3] == '' then take_in(entry, id, expiry, row[8], row[11]) end
  emit(id, expiry, 'running', 'worker.start',
    row[6] == 1 and first_attempt or '{"attempt":' .. row[6] .. '}')
  answer(entry, id, task, payload, row, token)
end
