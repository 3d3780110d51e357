#!lua
-- submit: create jobs, each once.
--
-- Hash, first event and queue entry appear together or not at all: a crash leaves no
-- incomplete job, and a full server refuses the whole call. A repeated job id, or an
-- idempotency key that has its job, creates nothing. Each job has its own answer, the
-- same as if it had been submitted alone.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:stub,
-- idempotency keys, jobs:delayed, jobs:suspended, jobs:open[:<tenant>], jobs:index[:<tenant>], jobs:tenants,
-- jobs:queues, jobs:stats:<minute>, jobs:bytes:<tenant>, jobs:guard:recount:<tenant>,
-- jobs:guard:bytes:<tenant>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   max_queue     how many jobs may wait in a queue
--   max_open      how many open jobs a tenant may have; 0: any number
--   max_retained  how many jobs of a tenant are retained; 0: any number
--   max_bytes     how many bytes the jobs of a tenant may have; 0: any number
--   ...   for each job: how many arguments it has, and those: job id, task, payload, ttl_s; and where the
--         job has any of these: delay_ms, idempotency, former name of it, fingerprint, tenant, given,
--         extra fields; a job of another queue than the default one has `queue` as its first extra field
-- RETURNS
--   submitted   the job is created; then its id, and the time
--   already     the idempotency key has this job; then its id, and 0
--   mismatch    the same, but from another body or for another tenant; then its id, and 0
--   full        too many jobs wait; then an empty text, and how many
--   tenant_open      the tenant has too many open jobs; then an empty text, and how many
--   tenant_retained  too many jobs of the tenant are retained; then an empty text, and how many
--   tenant_bytes     the jobs of the tenant have too many bytes; then an empty text, and how many
--   refused     the server refuses to write this one; then its error, and 0
-- CLAUSES J-1 J-2 J-3 J-4 J-7 J-9 J-10 J-11 J-12 J-53 J-57 D-10
-- INCLUDE keys create bytes tenants
local max_queue = tonumber(ARGV[1])
local answers = {}

-- J-12: how many jobs wait in the selected queue, or are delayed in any.
local waiting = {}
local function depth()
  if not waiting[queue] then
    waiting[queue] = redis.call('XLEN', queue) + redis.call('ZCARD', delayed_key)
  end
  return waiting[queue]
end

-- The job of an idempotency key, its fingerprint and tenant. A key whose job is gone is free again,
-- unless the job has left its stub (L-8).
local function job_of_key(name)
  local id = redis.call('GET', idempotency_key(name))
  if not id then return nil end
  local key = job_key(id)
  if redis.call('EXISTS', key) == 0 then
    key = stub_key(id)
    if redis.call('EXISTS', key) == 0 then return nil end
  end
  local values = redis.call('HMGET', key, 'fingerprint', 'tenant')
  return id, values[1] or '', values[2] or ''
end

local function submit(first, last)
  local job_id, task, payload, ttl_s = unpack(ARGV, first, first + 3)
  local delay_ms, idempotency, former, fingerprint, tenant, given = '0', '', '', '', '', '0'
  local extra = first + 4
  if extra <= last then
    delay_ms, idempotency, former, fingerprint, tenant, given = unpack(ARGV, extra, extra + 5)
    extra = extra + 6
  end
  if extra < last or queue_suffix ~= '' then
    select_queue(extra < last and ARGV[extra] == 'queue' and ARGV[extra + 1])
  end

  -- Only an id that the caller chose can have been submitted before.
  if given == '1' and redis.call('EXISTS', job_key(job_id)) == 1 then
    local created = redis.call('HGET', job_key(job_id), 'created_ts')
    return 'submitted', job_id, tonumber(created) or 0
  end
  if idempotency ~= '' then
    local earlier, earlier_fingerprint, owner = job_of_key(idempotency)
    if not earlier and former ~= '' then
      earlier, earlier_fingerprint, owner = job_of_key(former)
      -- The default tenant may have chosen that name for a key of its own.
      if owner ~= tenant then earlier = nil end
    end
    if earlier then
      if earlier_fingerprint ~= '' and fingerprint ~= ''
        and earlier_fingerprint ~= fingerprint then
        return 'mismatch', earlier, 0
      end
      -- A key of the default tenant may be the former name of another's.
      if owner ~= tenant then return 'mismatch', earlier, 0 end
      return 'already', earlier, 0
    end
  end
  local ahead = depth()
  if ahead >= max_queue then return 'full', '', ahead end
  local size = exceeded_limit and bytes().of(#payload)
  if exceeded_limit then
    local limit, number = exceeded_limit(tenant, size)
    if limit then return limit, '', number end
  end

  create(job_id, task, payload, ttl_s, delay_ms, idempotency, tenant, extra, last)
  waiting[queue] = ahead + 1
  if count_open then count_open(tenant, job_id, size, ttl_s) end
  return 'submitted', job_id, now_ms
end

local function add_answer(done, word, id, number)
  if not done then
    -- The server's error as a table, or the text of a Lua error.
    word, id, number = 'refused', type(word) == 'table' and word.err or tostring(word), 0
  end
  answers[#answers + 1] = word
  answers[#answers + 1] = id
  answers[#answers + 1] = number
end

local at = 5
while at <= #ARGV do
  local last = at + ARGV[at]
  add_answer(pcall(submit, at + 1, last))
  at = last + 1
end
write_indexes()
if write_open then write_open() end
return answers
