-- J-33: the fence. A worker may write a job while the job is running, the owner token is the
-- worker's and the entry is pending under its consumer. The token alone is not enough: a foreign
-- worker that claimed the entry does not set it.
local holders = {}
local function holder_of(entry)
  if not entry or entry == '' then return nil end
  local known = holders[queue]
  if known and known[entry] then return known[entry] end
  local pending = redis.pcall('XPENDING', queue, 'workers', entry, entry, 1)
  if pending.err or not pending[1] then return nil end
  return pending[1][2]
end

-- Read the holders of a batch in one command: entries that are settled together lie close together.
-- Entries that are not in the reply are read one by one.
local function read_holders(consumer, first, count)
  local known = holders[queue] or {}
  local rows = redis.pcall('XPENDING', queue, 'workers', first, '+', count, consumer)
  for _, row in ipairs(rows.err and {} or rows) do known[row[1]] = consumer end
  holders[queue] = known
end

-- The owner field of a delivery that its own worker has settled. A repeated call gets the same
-- answer; a job that another program ended does not.
local function settled(token) return token .. '!' end

-- Why this worker must not write a job with these fields (`gone`, `ended`, `lost`), or nil.
local function refusal_of(consumer, token, entry, status, owner)
  if status == 'running' and owner == token and holder_of(entry) == consumer then return nil end
  if not status then return 'gone' end
  return terminal[status] and 'ended' or 'lost'
end

-- The preamble of every write by a lease holder: the job's fields, and the refusal or nil.
local function read_fenced(consumer, id, entry, token, ...)
  local job = read_job(id, ...)
  return job, refusal_of(consumer, token, entry, job.status, job.owner)
end
