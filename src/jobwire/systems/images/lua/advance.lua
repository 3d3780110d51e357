#!lua
-- advance: write the stage of an image, and renew its lifetime.
--
-- Progress never falls: an image that is processed again after a crash keeps the stage it had
-- reached until the new run has passed it.
--
-- KEYS
--   status    hash    image:status:<id>
--   canceled  string  image:canceled:<id>
-- ARGV
--   stage, progress, updated_at, ttl_ms
-- RETURNS
--   written    the stage was written
--   behind     the image had reached a later stage; only its lifetime was renewed
--   ended      the image has ended; nothing was written
--   canceled   the image was deleted; nothing was written
-- CLAUSES I-1 I-7
local status, canceled = KEYS[1], KEYS[2]
local stage, progress, updated_at, ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if redis.call('EXISTS', canceled) == 1 then return 'canceled' end
local before = redis.call('HMGET', status, 'stage', 'progress')
if before[1] == 'done' or before[1] == 'failed' then return 'ended' end
local reached = tonumber(before[2] or '')
local behind = reached and (reached > progress or (reached == progress and before[1] == stage))
if not behind then
  redis.call('HSET', status, 'stage', stage, 'progress', progress, 'updated_at', updated_at)
end
redis.call('PEXPIRE', status, ttl_ms)
return behind and 'behind' or 'written'
