#!lua flags=allow-oom
-- release: release the claim of an attempt whose body did not arrive whole.
--
-- KEYS
--   upload  string  image:upload:<id>
--   owner   string  image:upload:<id>:owner
-- ARGV
--   attempt
-- RETURNS
--   released   the image can be uploaded again
--   not_held   another attempt or no attempt has the claim; nothing was written
-- CLAUSES I-2
local upload, owner, attempt = KEYS[1], KEYS[2], ARGV[1]

if redis.call('GET', owner) ~= attempt then return 'not_held' end
redis.call('DEL', upload, owner)
return 'released'
