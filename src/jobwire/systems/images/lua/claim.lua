#!lua
-- claim: claim the upload of an image for one attempt.
--
-- The guard has the same value for every program, so the owner is a key of its own, written in the same
-- step: a claim can be released by its attempt, even after a crash, and only by it.
--
-- KEYS
--   upload  string  image:upload:<id>
--   owner   string  image:upload:<id>:owner
-- ARGV
--   value, attempt, ttl_ms
-- RETURNS
--   claimed   this attempt has the claim
--   taken     another one has it; nothing was written
-- CLAUSES I-2
local upload, owner = KEYS[1], KEYS[2]
local value, attempt, ttl_ms = ARGV[1], ARGV[2], ARGV[3]

if not redis.call('SET', upload, value, 'NX', 'PX', ttl_ms) then
  -- A repeated call of the same attempt, whose reply was lost.
  if redis.call('GET', owner) == attempt then return 'claimed' end
  return 'taken'
end
redis.call('SET', owner, attempt, 'PX', ttl_ms)
return 'claimed'
