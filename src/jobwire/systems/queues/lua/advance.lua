#!lua flags=allow-oom
-- advance: make the next iteration of a scheduler, for the worker that started the current one.
--
-- The scheduler's record rules interval and payload, the running job's options go on. Only the
-- current iteration may do it: a worker that comes late changes nothing.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, scheduler, producer_id, next_ms, opts
-- RETURNS
--   added      the next iteration was made; its id follows
--   duplicate  it is there already; its id follows
--   late       the scheduler is gone, or another iteration is the current one
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue store slots
local scheduler, producer, next_ms = ARGV[3], ARGV[4], tonumber(ARGV[5])
local record = queue .. 'repeat:' .. scheduler
local current = redis.call('ZSCORE', queue .. 'repeat', scheduler)
if not current or producer ~= 'repeat:' .. scheduler .. ':' .. text(tonumber(current)) then
  return { 'late' }
end
local row = redis.call('HMGET', record, 'name', 'data', 'every', 'offset')
if not row[1] then return { 'late' } end
local every = number(row[3])
if every then next_ms = next_slot(every, number(row[4]) or 0, tonumber(current)) end
local id = 'repeat:' .. scheduler .. ':' .. text(next_ms)
if redis.call('EXISTS', queue .. id) == 1 then
  emit_trimmed(queue, 'duplicated', 'jobId', id)
  return { 'duplicate', id }
end
redis.call('ZADD', queue .. 'repeat', text(next_ms), scheduler)
count(record, 'ic')
redis.call('INCR', queue .. 'id')
local delay_ms = math.max(0, next_ms - now)
local opts = cjson.decode(ARGV[6])
opts.jobId, opts.delay, opts.timestamp, opts.repeatJobKey = id, delay_ms, now, scheduler
local job = {
  id = id, name = row[1], data = row[2] or '{}', opts = cjson.encode(opts), timestamp = text(now),
  delay = delay_ms, priority = number(opts.priority) or 0, scheduler = scheduler,
}
store(queue, job)
enqueue(queue, job)
return { 'added', id }
