#!lua flags=allow-oom
-- prune: drop from an index the jobs whose keys have expired.
--
-- Nobody is told when a key expires, so indexes are walked, a bounded piece at a
-- time. An empty tenant's index is forgotten with its tenant.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:index[:<tenant>],
-- jobs:tenants
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   tenant, cursor, look
-- RETURNS
--   cursor    where to go on; `0` after the last one
--   removed   how many went
--   tenant    the tenant to go on with after that; empty for the first index
-- CLAUSES J-14 J-39
-- INCLUDE keys
local tenant, cursor, look = ARGV[1], ARGV[2], ARGV[3]
local key = index_key(tenant)

local found = redis.call('ZSCAN', key, cursor, 'COUNT', look)
local gone = {}
for at = 1, #found[2], 2 do
  local id = found[2][at]
  if redis.call('EXISTS', job_key(id)) == 0 then gone[#gone + 1] = id end
end
-- A small sorted set is scanned whole, whatever the count: remove in bounded pieces.
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
