#!lua flags=allow-oom
-- renew_lease: renew the leases of jobs that this worker still holds.
--
-- The fence comes first: XCLAIM alone would steal an entry back from the worker
-- that has reclaimed it.
--
-- Also touches, below the queue's prefix: job:<id>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   consumer   the worker; then for each lease: job id, entry, token; before the leases of another
--              queue than the default one: its name, and empty texts
--   ...
-- RETURNS
--   renewed  the lease begins anew; also where the server refuses to read the job
--   cancel   the same, and cancellation of the job or of its parent was requested
--   lost     the job belongs to another delivery; nothing was done
--   ended    the job has ended, or is gone
-- CLAUSES J-9 J-32 J-33 D-16
-- INCLUDE keys job fence
local consumer = ARGV[1]
local answers, renewed = {}, {}

local function renew(id, entry, token)
  local job, refusal = read_fenced(consumer, id, entry, token, 'cancel_ts', 'parent')
  if refusal then return refusal == 'lost' and 'lost' or 'ended' end
  local entries = renewed[queue] or {}
  renewed[queue] = entries
  entries[#entries + 1] = entry
  if job.cancel_ts then return 'cancel' end
  -- D-16: a job whose parent was canceled is canceled, too.
  local parent_id = job.parent and string.match(job.parent, '^(%S+) ')
  return parent_id and redis.pcall('HGET', job_key(parent_id), 'status') == 'canceled' and 'cancel' or 'renewed'
end

for at = 2, #ARGV, 3 do
  if ARGV[at + 1] == '' then
    select_queue(ARGV[at])
  else
    local answer = isolated(renew, ARGV[at], ARGV[at + 1], ARGV[at + 2])
    -- Nothing is known of a job that may not be read: it is neither renewed nor lost.
    answers[#answers + 1] = answer == 'refused' and 'renewed' or answer
  end
end
for stream, entries in pairs(renewed) do
  entries[#entries + 1] = 'JUSTID'
  redis.call('XCLAIM', stream, 'workers', consumer, 0, unpack(entries))
end
return answers
