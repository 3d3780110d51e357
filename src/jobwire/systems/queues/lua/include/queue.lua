-- The queue that the script was called for. Its keys share the prefix of the one declared key;
-- `q` always stands for such a prefix, because a parent may belong to another queue.
local function prefix_of(meta) return string.sub(meta, 1, -(#'meta' + 1)) end
local meta = KEYS[1]
local queue = prefix_of(meta)
local now, extras = tonumber(ARGV[1]), ARGV[2] == '1'

-- Below this a score of `delayed` is plain milliseconds, written by a producer that does not know
-- the factor 4096. The smallest shifted score of this century is 70 times larger.
local RAW_BELOW = 1e14
local SHIFT = 4096

local called_at = now

-- Formatting costs as much as a command: the two usual numbers have their text already.
local function text(number)
  if number == called_at then return ARGV[1] end
  if number == 0 then return '0' end
  return string.format('%.0f', number)
end

-- What another program wrote where a number belongs; nil where it is none, or none to count with.
local function number(value)
  local found = tonumber(value)
  return found and found > -1e15 and found < 1e15 and found or nil
end

-- A counter that is not a number starts anew: an error here would stop a script half-way.
local function count(key, field)
  local made = redis.pcall('HINCRBY', key, field, 1)
  if type(made) == 'number' then return made end
  redis.call('HSET', key, field, 1)
  return 1
end

-- The same for a counter whose text was read already: its next value.
local function next_count(found)
  local value = found and string.match(found, '^-?%d+$') and number(found)
  return value and value + 1 or 1
end

-- What `pcall` returned for a command that the server refused.
local function error_text(raised)
  return type(raised) == 'table' and raised.err or tostring(raised)
end

local function decoded(json)
  if not json then return nil end
  local fine, value = pcall(cjson.decode, json)
  return fine and type(value) == 'table' and value or nil
end
