#!lua flags=allow-oom
-- finish: end an image: terminal stage and result entry in one step, once.
--
-- A reader never sees `done` without the result in the stream, and an image that ended is not
-- published again, whatever crashed and ran again. Results that the group has not acknowledged are
-- never trimmed below `limit`: a plain MAXLEN would lose them while the API is away.
--
-- KEYS
--   status    hash    image:status:<id>
--   canceled  string  image:canceled:<id>
--   result    stream  image:result
-- ARGV
--   group, trim, limit, ttl_ms, stage, progress, updated_at, error_text, ...
-- RETURNS
--   finished   stage and result were written; the rest of ARGV are the fields of the result
--   already    the image had ended before; nothing was written
--   canceled   the image was deleted; only the result CANCELED may be published
-- CLAUSES I-1 I-3 I-7
-- INCLUDE stream_ids
local status, canceled, result = KEYS[1], KEYS[2], KEYS[3]
local group, trim, limit, ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local stage, progress, updated_at, error_text = ARGV[5], ARGV[6], ARGV[7], ARGV[8]

-- The id of the oldest entry that the group has not acknowledged; nil if it is a new group.
local function first_unacknowledged()
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', result)) do
    local info = {}
    for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
    if info.name == group then
      if info.pending > 0 then return redis.call('XPENDING', result, group)[2] end
      local next_entry = redis.call('XRANGE', result, '(' .. info['last-delivered-id'], '+',
        'COUNT', 1)[1]
      return next_entry and next_entry[1] or '+'
    end
  end
end

-- In steps of a hundred, so that most calls do not look: about `trim` entries are kept.
local function trim_acknowledged()
  local excess = redis.call('XLEN', result) - trim
  if excess < 100 then return end
  local floor = first_unacknowledged()
  if not floor then return end
  local entries = redis.call('XRANGE', result, '-', '+', 'COUNT', math.min(excess, 500) + 1)
  local keep = entries[#entries][1]
  if not before(keep, floor) then keep = floor end
  redis.call('XTRIM', result, 'MINID', '=', keep)
end

local asked = redis.call('GET', canceled)
if asked == 'published' then return 'already' end
local ended = redis.call('HGET', status, 'stage')
if ended == 'done' or ended == 'failed' then return 'already' end
if asked then
  local code
  for at = 9, #ARGV, 2 do
    if ARGV[at] == 'error_code' then code = ARGV[at + 1] end
  end
  if code ~= 'CANCELED' then return 'canceled' end
  redis.call('SET', canceled, 'published', 'PX', ttl_ms)
else
  redis.call('HSET', status, 'stage', stage, 'progress', progress, 'updated_at', updated_at)
  if error_text ~= '' then
    redis.call('HSET', status, 'error', error_text)
  else
    redis.call('HDEL', status, 'error')
  end
  redis.call('PEXPIRE', status, ttl_ms)
end
redis.call('XADD', result, 'MAXLEN', '~', limit, '*', unpack(ARGV, 9))
trim_acknowledged()
return 'finished'
