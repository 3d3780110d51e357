-- Queue entries. Foreign gateways write them too, with their fields in any order.
local function fields_of(flat)
  local found = {}
  for at = 1, #flat - 1, 2 do found[flat[at]] = flat[at + 1] end
  return found
end

-- Task and payload of an entry; the hash's copy where a foreign MAXLEN has trimmed the entry.
local function content_of(entry, id)
  local rows = redis.call('XRANGE', queue, entry, entry)
  if rows[1] then
    local found = fields_of(rows[1][2])
    return found.task, found.payload
  end
  local copy = redis.call('HMGET', job_key(id), 'task', 'payload')
  return copy[1], copy[2]
end

-- Whether the entry id `left` is greater than `right`.
local function is_later(left, right)
  local left_ms, left_seq = string.match(left, '^(%d+)-(%d+)$')
  local right_ms, right_seq = string.match(right, '^(%d+)-(%d+)$')
  if tonumber(left_ms) ~= tonumber(right_ms) then return tonumber(left_ms) > tonumber(right_ms) end
  return tonumber(left_seq) > tonumber(right_seq)
end
