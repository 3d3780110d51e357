#!lua flags=allow-oom
-- erase_results: delete the results of deleted images, in one part of the stream.
--
-- A result that the group has not acknowledged is kept: its reader must still see that the image is
-- deleted. The dead letters are read without a group.
--
-- KEYS
--   stream  stream  image:result, or image:result:dead
-- ARGV
--   group, after, count, ...
-- RETURNS
--   next   the last entry that was read, to begin the next call after it; `-` after the last part
--   kept   then the images that have a result which is not acknowledged
-- CLAUSES I-42
-- INCLUDE stream_ids
local stream, group, after, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])

local function last_delivered()
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
    if info.name == group then return info['last-delivered-id'] end
  end
end

local function is_acknowledged(entry, delivered)
  if group == '' then return true end
  if not delivered or before(delivered, entry) then return false end
  return #redis.call('XPENDING', stream, group, entry, entry, 1) == 0
end

if redis.call('XLEN', stream) == 0 then return { '-' } end
local deleted = {}
for at = 4, #ARGV do deleted[ARGV[at]] = true end
local delivered = group ~= '' and last_delivered()
local entries = redis.call('XRANGE', stream, after, '+', 'COUNT', count)
local reply = { #entries == count and entries[count][1] or '-' }
for _, entry in ipairs(entries) do
  local image_id
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'image_id' then image_id = entry[2][at + 1] end
  end
  if deleted[image_id] then
    if is_acknowledged(entry[1], delivered) then
      redis.call('XDEL', stream, entry[1])
    else
      reply[#reply + 1] = image_id
    end
  end
end
return reply
