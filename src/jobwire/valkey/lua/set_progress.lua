#!lua
-- set_progress: merge fields into a progress hash and renew its TTL.
--
-- In one step, so that no crash in between leaves a hash without TTL.
--
-- KEYS
--   progress  hash  <prefix><id>
-- ARGV
--   ttl_ms, ...
-- RETURNS
--   set   always; the rest of ARGV are names and values of fields
-- CLAUSES T-8
local progress, ttl_ms = KEYS[1], ARGV[1]

if #ARGV > 1 then redis.call('HSET', progress, unpack(ARGV, 2)) end
redis.call('PEXPIRE', progress, ttl_ms)
return 'set'
