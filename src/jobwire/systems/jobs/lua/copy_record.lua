#!lua
-- copy_record: give a job that is about to be submitted what an ended one has recorded.
--
-- Results and starts of steps, sleeps that are over, signals, and children that are done are copied.
-- Failed children, signals that did not come and open waits are not: the new job does those again.
--
-- Also touches, below the queue's prefix: job:<id>:steps of both
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   from_id, to_id, ttl_s
-- RETURNS
--   copied   how many fields the new record has
-- CLAUSES J-9 D-13
-- INCLUDE keys
local from, to, ttl_s = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local flat = redis.pcall('HGETALL', steps_key(from))
local record, fields = {}, {}
for at = 1, flat.err and 0 or #flat, 2 do record[flat[at]] = flat[at + 1] end

local function is_kept(field, value)
  local kind, name = string.sub(field, 1, 2), string.sub(field, 3)
  if kind == 's:' or kind == 'o:' or kind == 'n:' then return true end
  if kind == 't:' then return not string.match(name, '^signal:') and (tonumber(value) or 0) <= now_ms end
  if kind == 'g:' then return string.find(value, ',', 1, true) ~= nil end
  if kind == 'k:' then value = record['c:' .. name] or '' end
  return (kind == 'k:' or kind == 'c:') and string.match(value, '^%[%d+,"done",') ~= nil
end

for field, value in pairs(record) do
  if is_kept(field, value) then
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
end
for at = 1, #fields, 1000 do
  redis.call('HSET', steps_key(to), unpack(fields, at, math.min(at + 999, #fields)))
end
if #fields > 0 then redis.call('PEXPIRE', steps_key(to), ttl_s * 1000) end
return #fields / 2
