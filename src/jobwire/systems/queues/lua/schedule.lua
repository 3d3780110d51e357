-- schedule: set a job scheduler and make its next iteration.
--
-- An iteration that is pending is replaced and keeps its time, unless the interval changed.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, scheduler, due_ms, name, data, template_opts, opts
--   every_ms, offset_ms, start_ms, end_ms, pattern, tz, limit
-- RETURNS
--   added      the iteration was made; its id follows
--   collision  a job of the iteration's id exists; nothing was made
--   busy       so do jobs of the following ones; nothing was made
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue store parents remove purge slots schedule
local scheduler, due, name, data = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local every, given_offset, start_ms = number(ARGV[9]), number(ARGV[10]), number(ARGV[11])
local record = queue .. 'repeat:' .. scheduler
local MOST_SLOTS = 32
max_events(queue)

local previous = number(redis.call('ZSCORE', queue .. 'repeat', scheduler))
local offset = given_offset or 0
local same_interval = true
if every then
  same_interval = not previous or number(redis.call('HGET', record, 'every')) == every
  due, offset = next_slot(every, offset, same_interval and previous or nil, start_ms)
end
local replaced = false
if previous then
  local id = 'repeat:' .. scheduler .. ':' .. text(previous)
  replaced = redis.call('EXISTS', queue .. id) == 1 and replace_iteration(queue, id)
end
if replaced then
  if every and same_interval then due = previous end
  offset = given_offset
end

local function iteration() return 'repeat:' .. scheduler .. ':' .. text(due) end

-- A job of the same id that has ended or is being run stays as it is.
if redis.call('EXISTS', queue .. iteration()) == 1 then
  if not every then
    if not replaced then return { 'collision' } end
  else
    for slot = 1, MOST_SLOTS do
      due = due + every
      if redis.call('EXISTS', queue .. iteration()) == 0 then break end
      if slot == MOST_SLOTS then return { 'busy' } end
    end
  end
end

local old = redis.call('HMGET', record, 'offset', 'ic')
redis.call('ZADD', queue .. 'repeat', text(due), scheduler)
local fields = { 'name', name }
local function also(field, value)
  if value and value ~= '' then
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
end
also('tz', ARGV[14])
also('limit', ARGV[15])
also('pattern', ARGV[13])
also('startDate', ARGV[11])
also('endDate', ARGV[12])
also('every', ARGV[9])
also('offset', offset and text(offset) or old[1])
also('opts', ARGV[7])
also('data', data ~= '{}' and data or nil)
also('ic', old[2] or '1')
redis.call('DEL', record)
redis.call('HSET', record, unpack(fields))
redis.call('INCR', queue .. 'id')
local delay_ms = math.max(0, due - now)
local opts = cjson.decode(ARGV[8])
opts.jobId, opts.delay = iteration(), delay_ms
local job = {
  id = iteration(), name = name, data = data, opts = cjson.encode(opts), timestamp = text(now),
  delay = delay_ms, priority = number(opts.priority) or 0, lifo = opts.lifo, scheduler = scheduler,
}
store(queue, job)
enqueue(queue, job)
return { 'added', job.id }
