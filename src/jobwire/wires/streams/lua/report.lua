#!lua
-- report: append events of running jobs.
--
-- Only the holder may speak of a job, and never after its end. A full server
-- refuses the whole call: events are the first thing to go without.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, idempotency:<name>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer
--   ...   for each report: job id, entry, token, number, type, step, data
-- RETURNS
--   written   the event is there; also when it was there already
--   dropped   the job has as many events as it may have, or the server will not write this one
--   lost      the job belongs to another, or has ended; nothing was written
-- CLAUSES J-4 J-7 J-9 J-33
-- INCLUDE keys state fence
local consumer = ARGV[3]
local answers, seen = {}, {}

-- J-4: reports stop before the limit, so that state events always fit. Reports of a later run evict
-- the oldest events; a watcher that has not seen those is sent a gap.
local report_limit = max_events - math.min(100, math.ceil(max_events / 10))

-- The last report's number counts only for the run that wrote it. Its token names that run: a
-- release takes the delivery back, so the number of deliveries does not.
local function look(id, entry, token)
  local row = fields(id, 'status', 'owner', 'ttl_s', 'reports', 'idempotency_key')
  if not holds(consumer, token, entry, row[1], row[2]) then return false end
  local length = redis.pcall('XLEN', events_key(id))
  extend_key(row[5], expiry_of(row[3]))
  local run, last = string.match(row[4] or '', '^(.+):(%d+)$')
  return {
    expiry = expiry_of(row[3]), last = run == token and tonumber(last) or 0,
    length = type(length) == 'number' and length or tonumber(max_events)
  }
end

local function say(id, entry, token, number, kind, step, data)
  local name = id .. token
  if seen[name] == nil then seen[name] = look(id, entry, token) end
  local job = seen[name]
  number = tonumber(number)
  if not job then return 'lost' end
  if number > 0 and number <= job.last then return 'written' end
  if job.length >= report_limit then
    -- All but one are of this run: there is nothing of an earlier one to evict.
    if job.length - job.last <= 2 then return 'dropped' end
    redis.call('XTRIM', events_key(id), 'MAXLEN', report_limit - 1)
    job.length = report_limit - 1
  end
  emit(id, job.expiry, kind, step, data)
  job.length = job.length + 1
  job.last = math.max(number, job.last)
  local reports = token .. ':' .. job.last
  if kind == 'progress' then
    update(id, job.expiry, 'reports', reports, 'progress', data)
  else
    update(id, job.expiry, 'reports', reports)
  end
  return 'written'
end

for at = 4, #ARGV, 7 do
  local answer = apart(say, unpack(ARGV, at, at + 6))
  answers[#answers + 1] = answer == 'refused' and 'dropped' or answer
end
return answers
