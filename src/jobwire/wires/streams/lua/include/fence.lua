-- J-33: who holds an entry. The owner token alone is not enough: a foreign worker that took the
-- entry over never sets it.
local function holder_of(entry)
  if not entry or entry == '' then return nil end
  local found = redis.pcall('XPENDING', queue, 'workers', entry, entry, 1)
  if found.err or not found[1] then return nil end
  return found[1][2]
end

-- A delivery that has been settled by its own hand is marked so. The same call asked again is then
-- answered as at first, while one whose job a stranger ended is not taken for the one who did.
local function settled(token) return token .. '!' end

local function holds(consumer, token, entry, status, owner)
  return status == 'running' and owner == token and holder_of(entry) == consumer
end
