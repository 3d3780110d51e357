#!lua flags=allow-oom
-- extend_ttl: renew the lifetimes of an accepted image's keys while it waits for its end.
--
-- A server that lost them gets the guard again, so that the image is not accepted twice, and the
-- status, so that a reader does not take the image for lost.
--
-- KEYS
--   status    hash    image:status:<id>
--   canceled  string  image:canceled:<id>
--   upload    string  image:upload:<id>
-- ARGV
--   value, guard_ttl_ms, ttl_ms, stage, progress, updated_at
-- RETURNS
--   kept       both live on
--   canceled   the image was deleted; only the guard was renewed
-- CLAUSES I-2 I-7
local status, canceled, upload = KEYS[1], KEYS[2], KEYS[3]
local value, guard_ttl_ms, ttl_ms = ARGV[1], ARGV[2], ARGV[3]
local stage, progress, updated_at = ARGV[4], ARGV[5], ARGV[6]

redis.call('SET', upload, value, 'PX', guard_ttl_ms)
if redis.call('PEXPIRE', canceled, ttl_ms) == 1 then return 'canceled' end
if redis.call('PEXPIRE', status, ttl_ms) == 0 then
  redis.call('HSET', status, 'stage', stage, 'progress', progress, 'updated_at', updated_at)
  redis.call('PEXPIRE', status, ttl_ms)
end
return 'kept'
