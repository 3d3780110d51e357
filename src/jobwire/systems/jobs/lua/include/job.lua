-- Reading a job hash into named fields.
local terminal = {done = true, error = true, canceled = true}

-- Whether the server refused the read (NOPERM and the like). WRONGTYPE is not a refusal: the key was
-- read, and is not a job. Of a job that may not be read nothing is known, and nothing may be deleted.
local function refused(reply) return reply.err and string.sub(reply.err, 1, 9) ~= 'WRONGTYPE' end

-- The fields that most scripts need, and those named. Absent fields are false, or nil with `err`.
-- The constructor reserves space for three more fields, so most jobs cost one allocation.
local function try_read_job(id, ...)
  local values = redis.pcall('HMGET', job_key(id), 'status', 'owner', 'ttl_s', 'idempotency_key', ...)
  local job = {
    id = id, status = values[1], owner = values[2], ttl_s = values[3], idempotency_key = values[4]
  }
  if values.err then
    job.err = values.err
    return job
  end
  for at = 1, select('#', ...) do job[select(at, ...)] = values[4 + at] end
  return job
end

-- The same; raises where the server refuses the read. A job that is gone has no status.
local function read_job(id, ...)
  local job = try_read_job(id, ...)
  if refused(job) then error(job.err) end
  return job
end

-- Run one job's part of a batch: what the server refuses for this job does not affect the others.
-- A refused part may be called again.
local function isolated(act, ...)
  local done, answer = pcall(act, ...)
  if done then return answer end
  return 'refused'
end
