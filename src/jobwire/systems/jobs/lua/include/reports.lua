-- What report and record share: the state of a run that writes events, and the number of its events.
local consumer = ARGV[3]

-- J-4: reports stop before the limit, so that state events always fit. Reports of a later run evict
-- the oldest events; a reader that has not received those gets a gap.
local report_limit = max_events - math.min(100, math.ceil(max_events / 10))

-- The run of a delivery, with the named fields of its job; false if this worker must not write it.
-- Read once per call. The last report's number counts only for the run that wrote it. The token names
-- that run; the number of deliveries does not, since a release takes a delivery back.
local runs = {}
local function read_run(id, entry, token, ...)
  local name = id .. token
  if runs[name] ~= nil then return runs[name] end
  local job, refusal = read_fenced(consumer, id, entry, token, 'reports', ...)
  runs[name] = not refusal and job
  if refusal then return false end
  local length = redis.pcall('XLEN', events_key(id))
  local run, last = string.match(job.reports or '', '^(.+):(%d+)$')
  job.expiry = expiry_of(job.ttl_s)
  job.last = run == token and tonumber(last) or 0
  job.length = type(length) == 'number' and length or tonumber(max_events)
  extend_key(job.idempotency_key, job.expiry)
  return job
end

-- Append an event of the run; false if the job has reached its number of events.
local function append(run, kind, step, data)
  if run.length >= report_limit then
    -- All events but one belong to this run: there is no earlier one to evict.
    if run.length - run.last <= 2 then return false end
    redis.call('XTRIM', events_key(run.id), 'MAXLEN', report_limit - 1)
    run.length = report_limit - 1
  end
  emit(run.id, run.expiry, kind, step, data)
  run.length = run.length + 1
  return true
end
