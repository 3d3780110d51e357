#!lua flags=allow-oom
-- prune: remove jobs whose keys have expired from an index.
--
-- An expiring key triggers nothing, so indexes are scanned, a bounded piece per call. A
-- tenant whose index is empty is removed too.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:index[:<tenant>],
-- jobs:tenants
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   tenant, cursor, scan_limit
-- RETURNS
--   cursor    where the next call begins; `0` after the last job
--   removed   how many jobs were removed
--   tenant    the tenant of the next call; empty for the first index
-- CLAUSES J-14 J-39
-- INCLUDE keys
local tenant, cursor, scan_limit = ARGV[1], ARGV[2], ARGV[3]
local key = index_key(tenant)

local found = redis.call('ZSCAN', key, cursor, 'COUNT', scan_limit)
local gone = {}
for at = 1, #found[2], 2 do
  local id = found[2][at]
  if redis.call('EXISTS', job_key(id)) == 0 then gone[#gone + 1] = id end
end
-- ZSCAN returns a small sorted set whole, whatever the count: remove in bounded pieces.
for at = 1, #gone, 1000 do
  redis.call('ZREM', key, unpack(gone, at, math.min(at + 999, #gone)))
end
if found[1] ~= '0' then return {found[1], #gone, tenant} end

local after = 0
if tenant ~= '' then
  after = redis.call('ZRANK', tenants_key, tenant) or 0
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', tenants_key, tenant)
  else
    after = after + 1
  end
end
return {'0', #gone, redis.call('ZRANGE', tenants_key, after, after)[1] or ''}
