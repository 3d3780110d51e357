#!lua flags=allow-oom
-- delete: remove the status of a deleted image, and cancel it at the upload gateway.
--
-- KEYS
--   status    hash    image:status:<id>
--   canceled  string  image:canceled:<id>
-- ARGV
--   ttl_ms
-- RETURNS
--   deleted   the status is gone
-- CLAUSES I-11
local status, canceled, ttl_ms = KEYS[1], KEYS[2], ARGV[1]

redis.call('DEL', status)
redis.call('SET', canceled, 'requested', 'NX', 'PX', ttl_ms)
return 'deleted'
