-- inspect: the keys of one job as they are, for people who write another client. Writes nothing.
--
-- Long values are cut; of lists, children and events only some are read. A key of another type
-- than the wire's is left out. A row is a name, a value and the length of the whole value; the row
-- of a stream is an id and such rows.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, job_id
-- RETURNS
--   keys     of each key: its part, the key, type, size, lifetime in ms, rows
-- CLAUSES B-8 B-12
-- INCLUDE queue
local MOST, LONGEST, MOST_FIELDS, MOST_EVENTS = 50, 4096, 200, 500
local id = ARGV[3]
local job = queue .. id
local found = {}

local function row(name, value)
  return { name, string.sub(value, 1, LONGEST), #value }
end

local function rows_of(flat, paired)
  local rows = {}
  for at = 1, #flat, paired and 2 or 1 do
    rows[#rows + 1] = paired and row(flat[at], flat[at + 1]) or row('', flat[at])
  end
  return rows
end

local function add(part, key, kind, size, rows)
  found[#found + 1] = { part, key, kind, size, redis.call('PTTL', key), rows }
end

local function is(key, kind)
  return redis.call('TYPE', key).ok == kind
end

local function add_hash(part, key)
  if not is(key, 'hash') then return end
  local size = redis.call('HLEN', key)
  local flat
  if size <= MOST_FIELDS then
    flat = redis.call('HGETALL', key)
  else
    flat = redis.call('HSCAN', key, 0, 'COUNT', MOST)[2]
  end
  add(part, key, 'hash', size, rows_of(flat, true))
end

local function add_string(part, key)
  if is(key, 'string') then
    add(part, key, 'string', 1, { row('', redis.call('GET', key)) })
  end
end

-- The list or sorted set of the job's state, with its place or score.
local function add_state()
  for _, state in ipairs({ 'completed', 'failed', 'delayed', 'prioritized', 'waiting-children' }) do
    local key = queue .. state
    local score = is(key, 'zset') and redis.call('ZSCORE', key, id)
    if score then return add(state, key, 'zset', redis.call('ZCARD', key), { row('', score) }) end
  end
  for _, state in ipairs({ 'active', 'wait', 'paused' }) do
    local key = queue .. state
    -- The next job is at the right end.
    local place = is(key, 'list') and redis.call('LPOS', key, id, 'RANK', -1)
    if place then
      return add(state, key, 'list', redis.call('LLEN', key), { row('', tostring(place)) })
    end
  end
end

add_hash('job', job)
if #found == 0 then return found end
add_string('lock', job .. ':lock')
add_state()
if is(job .. ':logs', 'list') then
  local lines = redis.call('LRANGE', job .. ':logs', -MOST, -1)
  add('logs', job .. ':logs', 'list', redis.call('LLEN', job .. ':logs'), rows_of(lines))
end
if is(job .. ':dependencies', 'set') then
  local children = redis.call('SSCAN', job .. ':dependencies', 0, 'COUNT', MOST)[2]
  local size = redis.call('SCARD', job .. ':dependencies')
  add('dependencies', job .. ':dependencies', 'set', size, rows_of(children))
end
add_hash('processed', job .. ':processed')
add_hash('ignored', job .. ':failed')
if is(job .. ':unsuccessful', 'zset') then
  local children = redis.call('ZRANGE', job .. ':unsuccessful', 0, MOST - 1)
  local size = redis.call('ZCARD', job .. ':unsuccessful')
  add('unsuccessful', job .. ':unsuccessful', 'zset', size, rows_of(children))
end
local owned = redis.call('HMGET', job, 'deid', 'rjk')
if owned[1] then add_string('deduplication', queue .. 'de:' .. owned[1]) end
if owned[2] then add_hash('scheduler', queue .. 'repeat:' .. owned[2]) end
if is(queue .. 'events', 'stream') then
  local entries, key = {}, queue .. 'events'
  for _, entry in ipairs(redis.call('XREVRANGE', key, '+', '-', 'COUNT', MOST_EVENTS)) do
    local ours = false
    for at = 1, #entry[2], 2 do
      if entry[2][at] == 'jobId' and entry[2][at + 1] == id then ours = true end
    end
    if ours then table.insert(entries, 1, { entry[1], rows_of(entry[2], true) }) end
    if #entries == MOST then break end
  end
  add('events', key, 'stream', redis.call('XLEN', key), entries)
end
return found
