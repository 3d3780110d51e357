#!lua
-- report: append events of running jobs.
--
-- Only the lease holder may report, and never after the job's end. A full server
-- refuses the whole call: events are dropped before anything else.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each report: job id, entry, token, number, type, step, data
--         before the reports of another queue than the default one: its name, and empty texts
-- RETURNS
--   written   the event is stored; also when it was stored before
--   dropped   the job has reached its number of events, or the server refuses to write this one
--   lost      the job belongs to another delivery, or has ended; nothing was written
-- CLAUSES J-4 J-7 J-9 J-33
-- INCLUDE keys job state fence
local consumer = ARGV[3]
local answers, runs = {}, {}

-- J-4: reports stop before the limit, so that state events always fit. Reports of a later run evict
-- the oldest events; a reader that has not received those gets a gap.
local report_limit = max_events - math.min(100, math.ceil(max_events / 10))

-- The last report's number counts only for the run that wrote it. The token names that run; the
-- number of deliveries does not, since a release takes a delivery back.
local function read_run(id, entry, token)
  local job, refusal = read_fenced(consumer, id, entry, token, 'reports')
  if refusal then return false end
  local expiry, length = expiry_of(job.ttl_s), redis.pcall('XLEN', events_key(id))
  extend_key(job.idempotency_key, expiry)
  local run, last = string.match(job.reports or '', '^(.+):(%d+)$')
  return {
    expiry = expiry, last = run == token and tonumber(last) or 0,
    length = type(length) == 'number' and length or tonumber(max_events)
  }
end

local function write_report(id, entry, token, number, kind, step, data)
  local name = id .. token
  if runs[name] == nil then runs[name] = read_run(id, entry, token) end
  local run = runs[name]
  number = tonumber(number)
  if not run then return 'lost' end
  if number > 0 and number <= run.last then return 'written' end
  if run.length >= report_limit then
    -- All events but one belong to this run: there is no earlier one to evict.
    if run.length - run.last <= 2 then return 'dropped' end
    redis.call('XTRIM', events_key(id), 'MAXLEN', report_limit - 1)
    run.length = report_limit - 1
  end
  emit(id, run.expiry, kind, step, data)
  run.length = run.length + 1
  run.last = math.max(number, run.last)
  local reports = token .. ':' .. run.last
  if kind == 'progress' then
    update(id, run.expiry, 'reports', reports, 'progress', data)
  else
    update(id, run.expiry, 'reports', reports)
  end
  return 'written'
end

for at = 4, #ARGV, 7 do
  if ARGV[at + 1] == '' then
    select_queue(ARGV[at])
  else
    local answer = isolated(write_report, unpack(ARGV, at, at + 6))
    answers[#answers + 1] = answer == 'refused' and 'dropped' or answer
  end
end
return answers
