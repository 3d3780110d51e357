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
-- CLAUSES I-38
local review, field, value = KEYS[1], ARGV[1], ARGV[2]

local found = redis.call('HMGET', review, 'held', 'decision')
if not found[1] or found[2] then return 'not_held' end
redis.call('HSET', review, field, value)
return 'noted'
