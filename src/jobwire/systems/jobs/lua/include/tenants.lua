-- J-57: how many jobs a tenant may have. Nothing is read or written while no limit is set.
--
-- A tenant's open jobs are added to a sorted set at submission and not removed when they end: when the
-- limit is reached, a bounded number of them, those counted longest ago first, is compared with
-- jobs:open. A recount that removed little is not repeated for a moment, so that a tenant at its limit
-- does not cost the server a recount with each refusal.
local exceeded_limit, count_open, write_open
if ARGV[2] ~= '0' or ARGV[3] ~= '0' then
  local max_open, max_retained = tonumber(ARGV[2]), tonumber(ARGV[3])
  local recount_limit, recount_every_ms, tenant_ttl_s = 10000, 200, 2592000
  local tenants, added = {}, {}

  local function tenant_open_key(tenant) return open_key .. ':' .. tenant end

  -- Remove a tenant's jobs that have ended; how many are open.
  local function recount(tenant, count)
    local key, guard = tenant_open_key(tenant), guard_key('recount:' .. tenant)
    if redis.call('EXISTS', guard) == 1 then return count end
    local ids = redis.call('ZRANGE', key, 0, recount_limit - 1)
    for at = 1, #ids, 1000 do
      local last = math.min(at + 999, #ids)
      local scores = redis.call('ZMSCORE', open_key, unpack(ids, at, last))
      local ended, counted = {}, {}
      for offset = 1, #scores do
        local id = ids[at + offset - 1]
        if not scores[offset] then
          ended[#ended + 1] = id
        else
          counted[#counted + 1] = now
          counted[#counted + 1] = id
        end
      end
      if #ended > 0 then count = count - redis.call('ZREM', key, unpack(ended)) end
      -- Where there are more than one recount reads, the next recount begins with the others.
      if #ids == recount_limit and #counted > 0 then redis.call('ZADD', key, unpack(counted)) end
    end
    if count > max_open * 3 / 4 then redis.call('SET', guard, '1', 'PX', recount_every_ms) end
    return count
  end

  -- The limit that refuses one more job of this tenant, and the number that has reached it.
  function exceeded_limit(tenant)
    if max_open == 0 and max_retained == 0 then return nil end
    local known = tenants[tenant]
    if not known then
      known = {
        open = redis.call('ZCARD', tenant_open_key(tenant)),
        retained = redis.call('ZCARD', index_key(tenant)),
      }
      if max_open > 0 and known.open >= max_open then known.open = recount(tenant, known.open) end
      tenants[tenant] = known
    end
    if max_open > 0 and known.open >= max_open then return 'tenant_open', known.open end
    if max_retained > 0 and known.retained >= max_retained then
      return 'tenant_retained', known.retained
    end
  end

  function count_open(tenant, id)
    local known = tenants[tenant]
    if not known then return end
    known.open, known.retained = known.open + 1, known.retained + 1
    local list = added[tenant] or {}
    added[tenant] = list
    list[#list + 1] = now
    list[#list + 1] = id
  end

  function write_open()
    if max_open == 0 then return end
    for tenant, list in pairs(added) do
      redis.pcall('ZADD', tenant_open_key(tenant), unpack(list))
      redis.pcall('EXPIRE', tenant_open_key(tenant), tenant_ttl_s)
    end
  end
end
