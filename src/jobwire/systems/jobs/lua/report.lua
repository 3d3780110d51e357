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
-- INCLUDE keys job state fence reports
local answers = {}

local function write_report(id, entry, token, number, kind, step, data)
  local run = read_run(id, entry, token)
  number = tonumber(number)
  if not run then return 'lost' end
  if number > 0 and number <= run.last then return 'written' end
  if not append(run, kind, step, data) then return 'dropped' end
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
