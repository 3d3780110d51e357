#!lua flags=allow-oom
-- delete: remove the status of a deleted image, and cancel it if it may be being processed.
--
-- KEYS
--   status    hash    image:status:<id>
--   canceled  string  image:canceled:<id>
-- ARGV
--   in_work, ttl_ms
-- RETURNS
--   deleted   the status is gone
-- CLAUSES I-11
local status, canceled, in_work, ttl_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

redis.call('DEL', status)
if in_work == '1' then redis.call('SET', canceled, 'requested', 'NX', 'PX', ttl_ms) end
return 'deleted'
