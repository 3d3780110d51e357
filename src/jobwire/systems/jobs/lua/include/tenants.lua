-- J-57: how many jobs and bytes a tenant may have. Nothing is read or written while no limit is set.
--
-- A tenant's open jobs are added to a sorted set at submission and not removed when they end: when the
-- limit is reached, a bounded number of them, those counted longest ago first, is compared with
-- jobs:open; suspended jobs do not count (D-10). A recount that removed little is not repeated for a moment, so that a tenant at its limit
-- does not cost the server a recount with each refusal.
local exceeded_limit, count_open, write_open
if ARGV[2] ~= '0' or ARGV[3] ~= '0' or ARGV[4] ~= '0' then
  local max_open, max_retained, max_bytes = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
  local recount_limit, recount_every_ms, tenant_ttl_s = 10000, 200, 2592000
  local tenants, added, unwritten = {}, {}, {}
  local add_bytes, span_of, live_bytes = bytes().add, bytes().span_of, bytes().live

  local function tenant_open_key(tenant) return open_key .. ':' .. tenant end

  -- Remove a tenant's jobs that have ended or are suspended; how many are open.
  local function recount(tenant, count)
    local key, guard = tenant_open_key(tenant), guard_key('recount:' .. tenant)
    if redis.call('EXISTS', guard) == 1 then return count end
    local ids = redis.call('ZRANGE', key, 0, recount_limit - 1)
    for at = 1, #ids, 1000 do
      local last = math.min(at + 999, #ids)
      local scores = redis.call('ZMSCORE', open_key, unpack(ids, at, last))
      local suspended = redis.call('ZMSCORE', suspended_key, unpack(ids, at, last))
      local ended, counted = {}, {}
      for offset = 1, #scores do
        local id = ids[at + offset - 1]
        if not scores[offset] or suspended[offset] then
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

  -- Small jobs are most jobs: of a sum below `sample` the whole sample is written, as often as the sum
  -- is a part of it. The microseconds of the server's clock decide.
  local sample = 16384
  local function write_bytes(tenant)
    for ttl_s, size in pairs(unwritten[tenant] or {}) do
      if size >= sample then
        add_bytes(tenant, span_of(now_ms + ttl_s * 1000), size)
      elseif time[2] % sample < size then
        add_bytes(tenant, span_of(now_ms + ttl_s * 1000), sample)
      end
    end
    unwritten[tenant] = nil
  end

  -- The bytes of a tenant whose sum would exceed the limit, without those that have expired.
  local function recount_bytes(tenant, total)
    local guard = guard_key('bytes:' .. tenant)
    if redis.call('EXISTS', guard) == 1 then return total end
    total = live_bytes(tenant)
    if total > max_bytes * 3 / 4 then redis.call('SET', guard, '1', 'PX', recount_every_ms) end
    return total
  end

  -- The limit that refuses one more job of this tenant, and the number that has reached it.
  function exceeded_limit(tenant, size)
    local known = tenants[tenant]
    if not known then
      known = {
        open = redis.call('ZCARD', tenant_open_key(tenant)),
        retained = redis.call('ZCARD', index_key(tenant)),
      }
      if max_open > 0 and known.open >= max_open then known.open = recount(tenant, known.open) end
      if max_bytes > 0 then known.bytes = tonumber(redis.call('HGET', bytes_key(tenant), 'total')) or 0 end
      tenants[tenant] = known
    end
    if max_open > 0 and known.open >= max_open then return 'tenant_open', known.open end
    if max_retained > 0 and known.retained >= max_retained then
      return 'tenant_retained', known.retained
    end
    if max_bytes > 0 and known.bytes + size > max_bytes then
      -- What this call has added is written first: the recount reads the server.
      write_bytes(tenant)
      known.bytes = recount_bytes(tenant, known.bytes)
      if known.bytes + size > max_bytes then return 'tenant_bytes', known.bytes end
    end
  end

  function count_open(tenant, id, size, ttl_s)
    local known = tenants[tenant]
    known.open, known.retained = known.open + 1, known.retained + 1
    if max_bytes > 0 then
      known.bytes = known.bytes + size
      local sizes = unwritten[tenant]
      if sizes then
        sizes[ttl_s] = (sizes[ttl_s] or 0) + size
      else
        unwritten[tenant] = { [ttl_s] = size }
      end
    end
    local list = added[tenant] or {}
    added[tenant] = list
    list[#list + 1] = now
    list[#list + 1] = id
  end

  function write_open()
    for tenant in pairs(unwritten) do write_bytes(tenant) end
    if max_open == 0 then return end
    for tenant, list in pairs(added) do
      redis.pcall('ZADD', tenant_open_key(tenant), unpack(list))
      redis.pcall('EXPIRE', tenant_open_key(tenant), tenant_ttl_s)
    end
  end
end
