#!lua
-- cron: create the job of a due time, once for the whole fleet.
--
-- The due time is stored in the same step that creates the job, for longer than any job
-- lives: a worker that was suspended for days between enroll and cron creates no second one.
--
-- Also touches, below the queue's prefix: jobs:cron:<name>, jobs:cron-paused, and all that submit touches
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   name, entry, due_ms, lifetime_s, job_id, task, payload, ttl_s, max_queue, idempotency, job_queue
--   ...   extra fields of the hash: name, value
-- RETURNS
--   submitted     the job is created; then its id, and the time
--   already_run   this due time or a later one has run, or the schedule is not enrolled
--   not_due       by the server's clock it is not due yet
--   paused        the entry is paused; its due times pass without a job
--   full          too many jobs wait; then how many
-- CLAUSES J-9 J-52
-- INCLUDE keys create
local name, entry, due_ms, lifetime_s = unpack(ARGV, 1, 4)
local job_id, task, payload, ttl_s, max_queue, idempotency, job_queue = unpack(ARGV, 5, 11)
select_queue(job_queue)

if tonumber(due_ms) > now_ms then return {'not_due'} end

local last_due = string.match(redis.call('HGET', cron_key(name), entry) or '', '^(%d+) ')
if not last_due or tonumber(last_due) >= tonumber(due_ms) then return {'already_run'} end
if redis.call('SISMEMBER', paused_crons_key, name) == 1 then return {'paused'} end

local waiting = redis.call('XLEN', queue) + redis.call('ZCARD', delayed_key)
if waiting >= tonumber(max_queue) then return {'full', waiting} end

redis.call('HSET', cron_key(name), entry, due_ms .. ' ' .. now)
redis.call('EXPIRE', cron_key(name), lifetime_s)
if redis.call('EXISTS', idempotency_key(idempotency)) == 1 then return {'already_run'} end
create(job_id, task, payload, ttl_s, '0', idempotency, '', 12, #ARGV)
write_indexes()
return {'submitted', job_id, now_ms}
