-- J-57: how many jobs a tenant may have. Nothing is read or written while tenants are not bounded.
--
-- A tenant's open jobs are entered in a sorted set at submission. Nobody removes them when they end:
-- when the bound is reached, a bounded number of them, those counted longest ago first, is compared
-- with jobs:open. A count that removed little is not repeated for a moment: a tenant at its bound
-- must not cost the server a count with each refusal.
local over_bound, count_open, write_open
if ARGV[2] ~= '0' or ARGV[3] ~= '0' then
  local max_open, max_retained = tonumber(ARGV[2]), tonumber(ARGV[3])
  local recount_look, recount_every_ms, tenant_ttl_s = 10000, 200, 2592000
  local tenants, entered = {}, {}

  local function tenant_open_key(tenant) return open_key .. ':' .. tenant end

  -- How many of a tenant's jobs are open, after those that have ended were removed.
  local function recount(tenant, count)
    local key, guard = tenant_open_key(tenant), guard_key('recount:' .. tenant)
    if redis.call('EXISTS', guard) == 1 then return count end
    local ids = redis.call('ZRANGE', key, 0, recount_look - 1)
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
      -- Where there are more than one look sees, the next look begins with the others.
      if #ids == recount_look and #counted > 0 then redis.call('ZADD', key, unpack(counted)) end
    end
    if count > max_open * 3 / 4 then redis.call('SET', guard, '1', 'PX', recount_every_ms) end
    return count
  end

  -- Which bound stands against one more job of this tenant, and what has reached it.
  function over_bound(tenant)
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
    local list = entered[tenant] or {}
    entered[tenant] = list
    list[#list + 1] = now
    list[#list + 1] = id
  end

  function write_open()
    if max_open == 0 then return end
    for tenant, list in pairs(entered) do
      redis.pcall('ZADD', tenant_open_key(tenant), unpack(list))
      redis.pcall('EXPIRE', tenant_open_key(tenant), tenant_ttl_s)
    end
  end
end
