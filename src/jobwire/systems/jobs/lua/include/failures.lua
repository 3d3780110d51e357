-- What follows a failed job: it is counted by its kind, and the job that its task's handler names with
-- on_failure is created.

-- `err` is the error object of a job that ends now; without it a foreign worker has ended the job. Every
-- job passes scripts with this include, so the functions are made only when one has failed.
function on_error(id, err)
  -- The first line of an error message, without what differs from job to job: ids and long numbers.
  local function first_line(message)
    local line = string.sub(string.match(message, '^[^\r\n]*'), 1, 200)
    line = string.gsub(line, '%x+%-%x+%-%x+%-%x+%-%x+', '\226\128\166')
    line = string.gsub(line, '%x%x%x%x%x%x%x%x+', '\226\128\166')
    return (string.gsub(line, '%d%d%d%d%d+', '\226\128\166'))
  end

  -- The kind of a failure as a field: task, code, first line. A tenant's hour has a bounded number of
  -- kinds: further ones are counted by task and code, and after that together.
  local function failure_field(key, task, code, line)
    local kinds = redis.call('HLEN', key)
    for _, kind in ipairs({{400, task, code, line}, {500, task, code, ''}}) do
      local field = cjson.encode({kind[2], kind[3], kind[4]})
      if kinds < kind[1] or redis.call('HEXISTS', key, field) == 1 then return field end
    end
    return cjson.encode({'', '', ''})
  end

  -- O-11: count a failed job by hour and kind, with a sample.
  local function count_failure()
    local task, tenant, worker = unpack(redis.call('HMGET', job_key(id), 'task', 'tenant', 'worker'))
    local object = cjson.decode(err)
    local code = type(object.code) == 'string' and string.sub(object.code, 1, 64) or ''
    local message = type(object.message) == 'string' and object.message or ''
    local key = failures_key(math.floor(now_ms / 3600000), tenant)
    local field = failure_field(key, string.sub(task or '', 1, 200), code, first_line(message))
    local known = redis.call('HGET', key, field)
    local times, first, _, _, last_worker = unpack(known and cjson.decode(known) or {0, now})
    -- Where several workers had such jobs, no worker is named.
    worker = string.sub(worker or '', 1, 200)
    if known and last_worker ~= worker then worker = '' end
    redis.call('HSET', key, field, cjson.encode({times + 1, first, now, id, worker}))
    redis.call('EXPIRE', key, 90000)
  end

  -- Whether the bytes above ASCII are whole characters. What is found is replaced, so that its neighbours do
  -- not become characters.
  local function is_utf8(text)
    local rest = string.gsub(text, '[\240-\244][\128-\191][\128-\191][\128-\191]', ' ')
    rest = string.gsub(rest, '[\224-\239][\128-\191][\128-\191]', ' ')
    rest = string.gsub(rest, '[\194-\223][\128-\191]', ' ')
    return not string.find(rest, '[\128-\255]')
      and not string.find(text, '\237[\160-\191]') and not string.find(text, '\224[\128-\159]')
      and not string.find(text, '\240[\128-\143]') and not string.find(text, '\244[\144-\191]')
  end

  -- Whether a text that the library has read is JSON: it also takes control characters in strings, and
  -- numbers that end with a point, are infinite, or have more digits than readers convert.
  local function is_json(text)
    local bare = string.gsub(text, '\\.', '')
    for quoted in string.gmatch(bare, '"([^"]*)"') do
      if string.find(quoted, '[\1-\31]') then return false end
    end
    for number in string.gmatch(string.gsub(bare, '"[^"]*"', '""'), '%d[%d.eE+-]*') do
      if string.find(number .. ' ', '%.%D') then return false end
      if string.find(number, '[.eE]') and tonumber(number) == math.huge or #number > 4300 then return false end
    end
    return true
  end

  -- The object of a JSON text; nil for anything else. A foreign program may have written any text, and the
  -- library reads more than JSON: NaN and hexadecimal numbers, and bytes that are no characters.
  local function decoded(text)
    cjson.decode_invalid_numbers(false)
    local done, object = pcall(cjson.decode, text)
    cjson.decode_invalid_numbers(true)
    return done and type(object) == 'table' and is_utf8(text) and is_json(text) and object or nil
  end

  -- The beginning of a text, as a JSON string.
  local function clipped(text, length)
    text = string.sub(text, 1, length)
    while #text > length - 4 and not is_utf8(text) do text = string.sub(text, 1, -2) end
    if not is_utf8(text) then text = string.gsub(text, '[\128-\255]', '?') end
    return cjson.encode(text)
  end

  local function is_absent_or_like(example, value) return value == nil or type(value) == type(example) end

  -- The error object of a job as it is, or made of what a foreign worker wrote. Ours have at most as many
  -- bytes as an event.
  local function error_object(text)
    local object, code, message = decoded(text), '', text
    if object and type(object.code) == 'string' and type(object.message) == 'string' then
      if #text <= 65536 and is_absent_or_like(1, object.attempt)
        and is_absent_or_like(true, object.retryable) then
        return text
      end
      code, message = object.code, object.message
    end
    return '{"code":' .. clipped(code, 200) .. ',"message":' .. clipped(message, 4096) .. '}'
  end

  -- The id of the job that follows a failed one. It cannot be guessed, since the owner token is random. The
  -- ids of a shard begin alike (G-3).
  local function following_id(owner)
    local digits = redis.sha1hex(id .. ' ' .. (owner or '') .. ' ' .. now .. time[2])
    local first, version = string.sub(digits, 1, 8), 4
    if string.find(id, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8') then
      first, version = string.sub(id, 1, 8), 8
    end
    return string.format('%s-%s-%d%s-a%s-%s', first, string.sub(digits, 9, 12), version,
      string.sub(digits, 13, 15), string.sub(digits, 16, 18), string.sub(digits, 19, 30))
  end

  -- What the job that follows gets. An invalid payload of a foreign gateway is left out, and so is one that
  -- is too large together with the error.
  local function following_payload(task, payload, error_text)
    local head = '{"job_id":' .. cjson.encode(id) .. ',"task":' .. cjson.encode(task) .. ',"error":'
      .. error_object(error_text or '')
    payload = payload or ''
    if #head + #payload + 12 <= 204800 and decoded(payload) then
      head = head .. ',"payload":' .. payload
    end
    return head .. '}'
  end

  -- D-23: create the job that the registration of the failed job's task names. It is created in the step
  -- that ends the failed job, so once; where a foreign worker ended it, when that is noticed. It waits
  -- outside of max_queue. If it fails itself, nothing follows; what it submits is as deep as children of the
  -- failed job (D-16), or the two could follow each other without end.
  local max_depth = 8
  local function create_following()
    local registration = redis.call('HGET', tasks_key, redis.call('HGET', job_key(id), 'task') or '')
    if not registration or not string.find(registration, '"on_failure":', 1, true) then return end
    local named = cjson.decode(registration).on_failure
    if not named then return end
    local task, payload, error_text, owner, tenant, traceparent, made, failure_of, depth = unpack(redis.call(
      'HMGET', job_key(id), 'task', 'payload', 'error', 'owner', 'tenant', 'traceparent', 'on_failure',
      'failure_of', 'depth'))
    depth = (tonumber(depth) or 0) + 1
    if made or failure_of or depth > max_depth then return end

    local new_id, expiry = following_id(owner), expiry_of(default_ttl_s)
    local content, extras = following_payload(task, payload, error_text), {'failure_of', id, 'depth', depth}
    local function add_extra(name, value)
      if not value or value == '' then return end
      extras[#extras + 1] = name
      extras[#extras + 1] = value
    end
    select_queue(named.queue)
    add_extra('queue', queue_suffix ~= '' and queue_name)
    add_extra('tenant', tenant)
    add_extra('traceparent', traceparent)
    redis.call('HSET', job_key(new_id), 'job_id', new_id, 'task', named.task, 'payload', content,
      'status', 'queued', 'created_ts', now, 'updated_ts', now, 'ttl_s', default_ttl_s, 'result', '',
      'error', '', unpack(extras))
    redis.call('PEXPIREAT', job_key(new_id), expiry)
    if bytes().is_counted(tenant or '') then
      bytes().add(tenant or '', bytes().span_of(tonumber(expiry)), bytes().of(#content))
    end
    emit(new_id, expiry, 'queued', 'gateway.enqueue', '{}')
    redis.pcall('ZADD', open_key, renewal_of(expiry), new_id)
    redis.pcall('ZADD', index_key(tenant), now, new_id)
    if tenant and tenant ~= '' then redis.pcall('ZADD', tenants_key, now, tenant) end
    enqueue(new_id, named.task, content)
    count('submissions')
    redis.call('HSET', job_key(id), 'on_failure', new_id)
  end

  -- A key or an error object of a wrong form must not keep a job from ending.
  local here = queue_name
  if err then pcall(count_failure) end
  pcall(create_following)
  select_queue(here)
end
