#!lua
-- submit: make jobs, each once.
--
-- Hash, first event and place in line appear together or not at all: a crash
-- leaves no half-made job, and a full server refuses the whole. Asked twice with
-- the same job id, or with an idempotency key that has its job, it makes nothing.
-- Each job is answered for itself, as if it had come alone.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:delayed, jobs:open, jobs:index[:<tenant>], jobs:tenants,
-- jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   max_queue   how many jobs may wait; then for each job: how many arguments it has, and those:
--   ...   job id, task, payload, ttl_s, delay_ms, idempotency, fingerprint, tenant, given, extra fields
-- RETURNS
--   submitted   the job is made; then its id, and when
--   already     the idempotency key has this job; then its id, and 0
--   mismatch    the same, but made from another body or for another tenant; then its id, and 0
--   full        too many jobs wait; then nothing, and how many
--   refused     the server will not make this one; then why, and 0
-- CLAUSES J-1 J-2 J-3 J-4 J-7 J-9 J-10 J-11 J-12
-- INCLUDE keys make
local max_queue = tonumber(ARGV[1])
local waiting = redis.call('XLEN', queue) + redis.call('ZCARD', delayed_key)
local answers = {}

local function submit(first, last)
  local job_id, task, payload, ttl_s, delay_ms = unpack(ARGV, first, first + 4)
  local idempotency, fingerprint, tenant, given = unpack(ARGV, first + 5, first + 8)

  -- Only an id that the caller gave can have been asked for before.
  if given == '1' and redis.call('EXISTS', job_key(job_id)) == 1 then
    local created = redis.call('HGET', job_key(job_id), 'created_ts')
    return 'submitted', job_id, tonumber(created) or 0
  end
  if idempotency ~= '' then
    local earlier = redis.call('GET', idempotency_key(idempotency))
    -- A key whose job is gone is as new.
    if earlier and redis.call('EXISTS', job_key(earlier)) == 1 then
      local body, owner = unpack(redis.call('HMGET', job_key(earlier), 'fingerprint', 'tenant'))
      if body and body ~= '' and fingerprint ~= '' and body ~= fingerprint then
        return 'mismatch', earlier, 0
      end
      -- A key of the default tenant may look like the name of another's.
      if (owner or '') ~= tenant then return 'mismatch', earlier, 0 end
      return 'already', earlier, 0
    end
  end
  if waiting >= max_queue then return 'full', '', waiting end

  make(job_id, task, payload, ttl_s, delay_ms, idempotency, tenant, first + 9, last)
  waiting = waiting + 1
  return 'submitted', job_id, now_ms
end

local function answer(done, word, id, number)
  if not done then
    -- A table of the server's, or the text of an error in Lua.
    word, id, number = 'refused', type(word) == 'table' and word.err or tostring(word), 0
  end
  answers[#answers + 1] = word
  answers[#answers + 1] = id
  answers[#answers + 1] = number
end

local at = 2
while at <= #ARGV do
  local last = at + ARGV[at]
  answer(pcall(submit, at + 1, last))
  at = last + 1
end
keep_books()
return answers
