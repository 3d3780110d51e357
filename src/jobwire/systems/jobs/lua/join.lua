#!lua flags=allow-oom
-- join: create the consumer group of each queue where it is missing.
--
-- From id 0, so that jobs queued before the first worker are read too. A script, because
-- a full server, which only workers can drain, refuses the plain command. The server's
-- time is noted, so that an outage or a clock that is set back is detected from the first
-- lease on.
--
-- Also touches, below the queue's prefix: jobs:guard:outage, jobs:clock
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   ...   the queues, in addition to the default one
-- RETURNS
--   joined   the groups exist
-- CLAUSES J-9 J-30 J-34
-- INCLUDE keys
local function create_group()
  local reply = redis.pcall('XGROUP', 'CREATE', queue, 'workers', '0', 'MKSTREAM')
  if reply.err and string.sub(reply.err, 1, 9) ~= 'BUSYGROUP' then return reply end
end

local failure = create_group()
if failure then return failure end
for at = 1, #ARGV do
  select_queue(ARGV[at])
  failure = create_group()
  if failure then return failure end
  if queue_suffix ~= '' then redis.pcall('SADD', queues_key, queue_name) end
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if redis.pcall('HSETNX', guard_key('outage'), 'seen_ts', now) == 1 then
  redis.call('EXPIRE', guard_key('outage'), 86400)
end
redis.pcall('SET', clock_key, now, 'NX', 'EX', 86400)
return 'joined'
