#!lua flags=allow-oom
-- hold: note that a photo waits for a reviewer, and read what was decided.
--
-- Called again and again by the upload gateway that has the photo, so that a server which lost its
-- data knows the photo again.
--
-- KEYS
--   review  hash  image:review:<id>
-- ARGV
--   ttl_ms
-- RETURNS
--   decision   empty: none yet; then the drawn areas, and whether the picture is wanted
-- CLAUSES I-38
local review, ttl_ms = KEYS[1], ARGV[1]

local found = redis.call('HMGET', review, 'decision', 'areas', 'wanted')
redis.call('HSET', review, 'held', '1')
redis.call('HDEL', review, 'wanted')
redis.call('PEXPIRE', review, ttl_ms)
return { found[1] or '', found[2] or '', found[3] or '' }
