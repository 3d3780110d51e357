-- Queue entries, which anybody may have written, in any order of fields.
local function fields_of(flat)
  local found = {}
  for at = 1, #flat - 1, 2 do found[flat[at]] = flat[at + 1] end
  return found
end

-- What is written in an entry; the hash's copy where a stranger's MAXLEN has trimmed it.
local function content_of(entry, id)
  local rows = redis.call('XRANGE', queue, entry, entry)
  if rows[1] then
    local found = fields_of(rows[1][2])
    return found.task, found.payload
  end
  local copy = redis.call('HMGET', job_key(id), 'task', 'payload')
  return copy[1], copy[2]
end

local function later(one, other)
  local one_ms, one_seq = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_seq = string.match(other, '^(%d+)-(%d+)$')
  if tonumber(one_ms) ~= tonumber(other_ms) then return tonumber(one_ms) > tonumber(other_ms) end
  return tonumber(one_seq) > tonumber(other_seq)
end
