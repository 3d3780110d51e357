#!lua flags=allow-oom
-- hold: note that a photo waits for a reviewer, and read what was decided.
--
-- Called again and again by the upload gateway that has the photo, so that a server which lost its
-- data knows the photo again.
--
-- KEYS
--   review   hash    image:review:<id>
--   picture  string  image:review:<id>:picture
-- ARGV
--   ttl_ms, reason, made (the areas with which the photo was made)
-- RETURNS
--   decision   empty: none yet; then the drawn areas, and whether the picture is wanted
-- CLAUSES I-38
local review, picture, ttl_ms, reason, made = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local found = redis.call('HMGET', review, 'decision', 'areas', 'wanted', 'made')
if found[4] and found[4] ~= made then redis.call('DEL', picture) end
redis.call('HSET', review, 'held', reason, 'made', made)
redis.call('HDEL', review, 'wanted')
redis.call('PEXPIRE', review, ttl_ms)
return { found[1] or '', found[2] or '', found[3] or '' }
