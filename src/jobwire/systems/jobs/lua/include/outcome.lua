-- What settle, retry and release share: the fence, and the answer where it refuses the write.
local consumer = ARGV[3]

-- The answer for a job that this worker must not write. The entry of a job that is gone or ended is
-- acknowledged if it is still pending here. `is_repeated`: this call has done its work before.
local function refusal_answer(refusal, entry, is_repeated)
  if is_repeated and refusal ~= 'gone' then return 'settled' end
  if refusal == 'lost' then return 'lost' end
  if holder_of(entry) == consumer then clear(entry) end
  return refusal == 'gone' and 'gone' or 'already'
end

-- J-16: a requested cancellation ends the job instead of another attempt.
local function end_canceled(job, entry, token, expiry, step)
  finish_canceled(job.id, expiry, job.attempt, step)
  redis.call('HSET', job_key(job.id), 'owner', settled(token))
  clear(entry)
  return 'settled'
end

-- J-55: the exception of a failed attempt; the latest one replaces those before it.
local function store_exception(id, exception)
  if exception == '' then return end
  local parts = cjson.decode(exception)
  redis.call('HSET', job_key(id), 'exception_type', parts[1], 'exception_message', parts[2],
    'traceback', parts[3])
end

-- Run `act` for each job of the call, which has `width` arguments: job id, entry, and others. Without
-- an entry, the first one names the queue of the jobs that follow.
local function answer_each(act, width)
  local answers = {}
  for at = 4, #ARGV, width do
    if ARGV[at + 1] == '' then
      select_queue(ARGV[at])
    else
      answers[#answers + 1] = isolated(act, unpack(ARGV, at, at + width - 1))
    end
  end
  flush()
  return answers
end
