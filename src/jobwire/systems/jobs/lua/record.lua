#!lua flags=allow-oom
-- record: store results of steps of running jobs, in order with their reports.
--
-- Only the lease holder may record. A result is stored once: the same call repeated changes nothing.
-- A new result is progress: attempts and lost deliveries before it no longer count; an error is none. A
-- full server accepts it, since what it stores was paid for and the worker bounds its size.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps,
-- idempotency:<name>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each record: job id, entry, token, field, value: a result `s:<name>` as a JSON
--         array of 0, its milliseconds and the value; the server's time replaces the 0; the error of a step
--         `e:<name>`, likewise; the start of a step `o:<name>`, removed by an empty value; an empty field
--         only extends the record's lifetime
--         before the records of another queue than the default one: its name, and empty texts
-- RETURNS
--   written   it is stored, now or in an earlier call
--   lost      the job belongs to another delivery, or has ended; nothing was written
--   refused   the server refuses to write it, or another value is stored
-- CLAUSES J-9 J-33 D-1 D-4a D-5 D-7
-- INCLUDE keys job state fence reports
local answers = {}

-- The fields of a job after a new result: attempts and deliveries count from here.
local function progress_of(run)
  local attempt, deliveries = tonumber(run.attempt) or 1, tonumber(run.deliveries) or 1
  if attempt == 1 and deliveries == 1 then return end
  local excused = math.max(deliveries - attempt, tonumber(run.excused_deliveries) or 0)
  return 'progress_attempt', attempt, 'excused_deliveries', excused
end

local function record(id, entry, token, field, value)
  local run = read_run(id, entry, token, 'attempt', 'deliveries', 'excused_deliveries')
  if not run then return 'lost' end
  local key, name, is_new = steps_key(id), string.sub(field, 3), false
  if field == '' then
    redis.call('PEXPIREAT', key, run.expiry)
    return 'written'
  elseif string.sub(field, 1, 2) == 'o:' then
    if value == '' then
      redis.call('HDEL', key, field)
    elseif redis.call('HSETNX', key, field, token) == 0 and redis.call('HGET', key, field) ~= token then
      return 'refused'
    end
  elseif redis.call('HSETNX', key, field, '[' .. now .. string.sub(value, 3)) == 1 then
    is_new = string.sub(field, 1, 2) == 's:'
    if is_new then redis.call('HDEL', key, 'o:' .. name) end
    local ms = string.match(value, '^%[0,(%d+),')
    append(run, 'step_done', 'worker.step', '{"name":"' .. name .. '","ms":' .. ms
      .. ',"bytes":' .. #value - #ms - 5 .. (is_new and '}' or ',"failed":true}'))
  elseif string.match(redis.call('HGET', key, field), '^%[%d+(.*)$') ~= string.sub(value, 3) then
    return 'refused'
  end
  local records = redis.call('HLEN', key)
  if is_new then
    update(id, run.expiry, 'steps', records, progress_of(run))
  else
    update(id, run.expiry, 'steps', records)
  end
  redis.call('PEXPIREAT', key, run.expiry)
  return 'written'
end

for at = 4, #ARGV, 5 do
  if ARGV[at + 1] == '' then
    select_queue(ARGV[at])
  else
    answers[#answers + 1] = isolated(record, unpack(ARGV, at, at + 4))
  end
end
return answers
