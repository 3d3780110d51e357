-- J-33: who holds an entry. The owner token alone is not enough: a foreign worker that took the
-- entry over never sets it.
local held = {}
local function holder_of(entry)
  if not entry or entry == '' then return nil end
  if held[entry] then return held[entry] end
  local found = redis.pcall('XPENDING', queue, 'workers', entry, entry, 1)
  if found.err or not found[1] then return nil end
  return found[1][2]
end

-- The same for a batch, asked at once: what a busy worker settles together lies together. Only what
-- was found counts; the rest is asked for one by one.
local function look_ahead(consumer, first, count)
  local rows = redis.pcall('XPENDING', queue, 'workers', first, '+', count, consumer)
  for _, row in ipairs(rows.err and {} or rows) do held[row[1]] = consumer end
end

-- A delivery that has been settled by its own hand is marked so. The same call asked again is then
-- answered as at first, while one whose job a stranger ended is not taken for the one who did.
local function settled(token) return token .. '!' end

local function holds(consumer, token, entry, status, owner)
  return status == 'running' and owner == token and holder_of(entry) == consumer
end
