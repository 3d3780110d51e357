#!lua flags=allow-oom
-- report_shards: tell the fleet which shards this process knows, and read the shard table.
--
-- A table is the list of shards that get new jobs. It is replaced when every process that has
-- reported lately wants the same other one and reads all of its shards (G-5). Former tables are kept
-- for as long as an idempotency key may live. Only in the first shard.
--
-- Also touches, below the queue's prefix: jobs:shards
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   process     name of this process
--   reads       the shards that it reads, separated by commas
--   writes      those that it wants to get new jobs; empty: it is leaving
--   lifetime_ms after which a process that does not report any more is gone
--   history_ms  how long a former table is kept
-- RETURNS
--   tables    `<since_ms>=<shard>,<shard>…` for each, separated by `;`, the current one last
--   reports   the others and this one: name and `<seen_ms> <reads> <writes>`, flat
-- CLAUSES G-5
-- INCLUDE keys
local process, reads, writes = ARGV[1], ARGV[2], ARGV[3]
local lifetime_ms, history_ms = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function has_all(list, wanted)
  for shard in string.gmatch(wanted, '%d+') do
    if not string.find(',' .. list .. ',', ',' .. shard .. ',', 1, true) then return false end
  end
  return true
end

if writes ~= '' then
  redis.call('HSET', shards_key, 'process:' .. process,
    string.format('%.0f %s %s', now_ms, reads, writes))
else
  redis.call('HDEL', shards_key, 'process:' .. process)
end

local stored = redis.call('HGETALL', shards_key)
local tables, reports, agreed = '', {}, writes ~= ''
for at = 1, #stored, 2 do
  local name = string.match(stored[at], '^process:(.*)$')
  if stored[at] == 'tables' then
    tables = stored[at + 1]
  elseif name then
    local seen, own_reads, own_writes = string.match(stored[at + 1], '^(%d+) (%S+) (%S+)$')
    if not seen or seen + lifetime_ms < now_ms then
      redis.call('HDEL', shards_key, stored[at])
    else
      reports[#reports + 1] = name
      reports[#reports + 1] = stored[at + 1]
      agreed = agreed and own_writes == writes and has_all(own_reads, writes)
    end
  end
end

local kept, current = {}, nil
for since, list in string.gmatch(tables, '(%d+)=([%d,]+)') do
  -- A table ends when the next one begins.
  if #kept > 0 and since + history_ms < now_ms then kept = {} end
  kept[#kept + 1] = since .. '=' .. list
  current = list
end
if not current and agreed and writes ~= '0' and redis.call('EXISTS', queue) == 1 then
  -- There were jobs before there were shards: they are in this one.
  kept[1], current = '0=0', '0'
end
if agreed and current ~= writes then
  kept[#kept + 1] = string.format('%.0f=%s', now_ms, writes)
end
local found = table.concat(kept, ';')
if found ~= tables then redis.call('HSET', shards_key, 'tables', found) end
return {found, reports}
