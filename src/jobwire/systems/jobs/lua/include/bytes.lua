-- J-57: how many bytes of a tenant's jobs are stored, by the time when they expire. A job counts twice its
-- payload, which the hash and the queue entry have, its signals and the results of its children, and one
-- KiB. What expires leaves the sum when the
-- limit is reached next, so that a submission costs the same however many jobs there are.
--
-- A hash per tenant: `total`, and a field for each span of expiry times, whose length is about a
-- sixty-fourth of a job's lifetime. `total` has spans that are over until `live_bytes` removes them.
--
-- Every job passes scripts with this include, so the functions are made only when one is needed.
local counting
local function bytes()
  if counting then return counting end

  local function bytes_of(payload_size) return 2 * payload_size + 1024 end

  -- The field of an expiry (in ms) that lies this far ahead: the end of its span in seconds.
  local function span_of(expiry_ms)
    local expiry_s, step = math.ceil(expiry_ms / 1000), 1
    local ahead_s = expiry_s - math.floor(now_ms / 1000)
    while step * 64 < ahead_s do step = step * 2 end
    return string.format('%.0f', math.ceil(expiry_s / step) * step)
  end

  local function add_bytes(tenant, span, size)
    local key = bytes_key(tenant)
    if redis.call('HINCRBY', key, span, size) == size then redis.call('EXPIRE', key, 5184000) end
    return redis.call('HINCRBY', key, 'total', size)
  end

  -- Remove the spans that are over; the bytes that are left.
  local function live_bytes(tenant)
    local key = bytes_key(tenant)
    local fields, over, total = redis.call('HGETALL', key), {}, 0
    for at = 1, #fields, 2 do
      if fields[at] ~= 'total' then
        if tonumber(fields[at]) * 1000 <= now_ms then
          over[#over + 1] = fields[at]
        else
          total = total + fields[at + 1]
        end
      end
    end
    if #over > 0 then redis.call('HDEL', key, unpack(over)) end
    if #fields > 0 then redis.call('HSET', key, 'total', string.format('%.0f', total)) end
    return total
  end

  -- Where bytes are not counted, nothing is read but the tenant.
  local counted_tenants = {}
  local function is_counted(tenant)
    if counted_tenants[tenant] == nil then
      counted_tenants[tenant] = redis.call('EXISTS', bytes_key(tenant)) == 1
    end
    return counted_tenants[tenant]
  end

  -- When the bytes of a job leave the sum, in ms. A start or an event gives its keys another expiry and does
  -- not count: the time of the next renewal, at half of the lifetime, tells when they were counted. Those of
  -- a suspended job expire as counted.
  local function counted_until(id)
    local due_ms = redis.pcall('ZSCORE', suspended_key, id)
    local renewal_ms = type(due_ms) ~= 'string' and redis.pcall('ZSCORE', open_key, id)
    if type(renewal_ms) == 'string' then
      local lifetime_ms = expiry_of(redis.call('HGET', job_key(id), 'ttl_s')) - now_ms
      return tonumber(renewal_ms) + lifetime_ms / 2
    end
    return now_ms + redis.call('PTTL', job_key(id))
  end

  -- D-6: with the bytes of its signals, and of what its children returned.
  local function size_of(id)
    local outside = redis.call('HGET', job_key(id), 'outside_bytes')
    return bytes_of(redis.call('HSTRLEN', job_key(id), 'payload')) + (tonumber(outside) or 0)
  end

  -- The keys of a job are about to expire at another time. The span that is reduced may be shorter than the
  -- one that was increased: the sum is too high then for a thirty-second of the lifetime.
  local function move_bytes(id, expiry)
    local tenant = redis.call('HGET', job_key(id), 'tenant') or ''
    if not is_counted(tenant) then return end
    local size, until_ms = size_of(id), counted_until(id)
    if until_ms > now_ms then add_bytes(tenant, span_of(until_ms), -size) end
    add_bytes(tenant, span_of(tonumber(expiry)), size)
  end

  -- The job is about to have so many bytes more, or fewer.
  local function grow(id, more)
    local tenant = redis.call('HGET', job_key(id), 'tenant') or ''
    if is_counted(tenant) then add_bytes(tenant, span_of(math.max(counted_until(id), now_ms)), more) end
  end

  -- The job gets another payload, and nothing else.
  local function change_bytes(id, payload) grow(id, bytes_of(#payload) - size_of(id)) end

  -- Whether a tenant would have more than `max_bytes`. Recounted once in a moment, as for submissions.
  local function exceeds(tenant, more, max_bytes)
    if max_bytes == 0 then return false end
    local total = tonumber(redis.call('HGET', bytes_key(tenant), 'total')) or 0
    if total + more > max_bytes and redis.call('SET', guard_key('bytes:' .. tenant), '1', 'NX', 'PX', 200) then
      total = live_bytes(tenant)
    end
    return total + more > max_bytes
  end

  counting = {
    of = bytes_of, span_of = span_of, add = add_bytes, live = live_bytes, is_counted = is_counted,
    move = move_bytes, grow = grow, change = change_bytes, exceeds = exceeds
  }
  return counting
end
