#!lua
-- review: pass a wish of a reviewer to the upload gateway that holds the photo.
--
-- KEYS
--   review  hash  image:review:<id>
-- ARGV
--   field, value
-- RETURNS
--   noted      the gateway will read it
--   not_held   the photo does not wait for a decision, or it is decided
--   changing   the picture is asked for, and is being made with other areas
-- CLAUSES I-38
local review, field, value = KEYS[1], ARGV[1], ARGV[2]

local found = redis.call('HMGET', review, 'held', 'decision', 'areas', 'made')
if not found[1] or found[2] then return 'not_held' end
if field == 'wanted' and found[3] and found[3] ~= found[4] then return 'changing' end
redis.call('HSET', review, field, value)
return 'noted'
