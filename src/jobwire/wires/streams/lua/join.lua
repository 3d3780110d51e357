#!lua flags=allow-oom
-- join: create the group of workers where it is missing.
--
-- From id 0, so that jobs enqueued before the first worker are read too. A script,
-- because the plain command is refused by a full server, which only workers can drain.
--
-- KEYS
--   queue    stream  jobs:stream
-- RETURNS
--   joined   the group is there
-- CLAUSES J-9 J-30
local queue = KEYS[1]
local reply = redis.pcall('XGROUP', 'CREATE', queue, 'workers', '0', 'MKSTREAM')
if reply.err and string.sub(reply.err, 1, 9) ~= 'BUSYGROUP' then return reply end
return 'joined'
