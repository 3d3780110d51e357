#!lua flags=allow-oom
-- enroll: be told which due time of a cron entry was seen to last, and the time.
--
-- An entry that nobody has enrolled, or whose times were changed, begins now: what
-- would have been due before is no missed run. While workers with the old times and
-- workers with the new ones are there together, each goes on with its own; times that
-- nobody has asked about for a while are forgotten. A due time that lies ahead was seen to
-- before the server's clock was set back: the entry goes on from now.
--
-- Also touches, below the queue's prefix: jobs:cron:<name>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   name, entry, lifetime_s, gone_ms, ahead_ms
-- RETURNS
--   seen   then the due time, and the server's time, in ms
-- CLAUSES J-52
-- INCLUDE keys
local name, entry, lifetime_s, gone_ms, ahead_ms = unpack(ARGV)
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local seen = now
local known = redis.call('HGETALL', cron_key(name))
for at = 1, #known, 2 do
  local due, asked = string.match(known[at + 1], '^(%d+) (%d+)$')
  if known[at] == entry then
    if tonumber(due) <= now + ahead_ms then seen = due end
  elseif asked + gone_ms < tonumber(now) then
    redis.call('HDEL', cron_key(name), known[at])
  end
end
redis.call('HSET', cron_key(name), entry, seen .. ' ' .. now)
redis.call('EXPIRE', cron_key(name), lifetime_s)
return {'seen', seen, now}
