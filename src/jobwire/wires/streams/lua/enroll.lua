#!lua flags=allow-oom
-- enroll: be told which due time of a cron entry was seen to last, and the time.
--
-- An entry that nobody has enrolled, or whose times were changed, begins now: what
-- would have been due before is no missed run.
--
-- Also touches, below the queue's prefix: jobs:cron:<name>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   name, entry, lifetime_s
-- RETURNS
--   seen   then the due time, and the server's time, in ms
-- CLAUSES J-52
-- INCLUDE keys
local name, entry, lifetime_s = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local seen, known = string.match(redis.call('GET', cron_key(name)) or '', '^(%d+) (.*)$')
if known ~= entry then seen = now end
redis.call('SET', cron_key(name), seen .. ' ' .. entry, 'EX', lifetime_s)
return {'seen', seen, now}
