#!lua flags=allow-oom
-- obliterate: delete a paused queue with its jobs and schedulers, at most `count` in a call.
--
-- Jobs that wait for children stay, as with the official packages: their children may be in other
-- queues.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, force, count
-- RETURNS
--   done        the queue is gone
--   more        call again
--   not_paused  the queue runs; nothing was deleted
--   active      workers run jobs of the queue; nothing was deleted
-- CLAUSES B-8 B-10
-- INCLUDE queue events enqueue parents remove purge
local force, count = ARGV[3] == '1', tonumber(ARGV[4])
local left = count
if redis.call('HEXISTS', queue .. 'meta', 'paused') == 0 then return 'not_paused' end
if not force and redis.call('LLEN', queue .. 'active') > 0 then return 'active' end

local function purge_list(name)
  local ids = redis.call('LRANGE', queue .. name, 0, left - 1)
  for _, id in ipairs(ids) do
    if name == 'active' then redis.call('DEL', queue .. id .. ':lock') end
    purge(queue, id)
  end
  redis.call('LTRIM', queue .. name, #ids, -1)
  left = left - #ids
end

local function purge_set(name)
  local ids = redis.call('ZRANGE', queue .. name, 0, left - 1)
  for _, id in ipairs(ids) do
    if name == 'repeat' then redis.call('DEL', queue .. 'repeat:' .. id) else purge(queue, id) end
  end
  remove_members(queue .. name, ids)
  left = left - #ids
end

local STEPS = {
  { purge_list, 'active' }, { purge_set, 'delayed' }, { purge_set, 'repeat' },
  { purge_set, 'completed' }, { purge_list, 'wait' }, { purge_list, 'paused' },
  { purge_set, 'prioritized' }, { purge_set, 'failed' },
}
for _, step in ipairs(STEPS) do
  step[1](step[2])
  if left <= 0 then return 'more' end
end
local OWN = {
  'events', 'delay', 'stalled-check', 'stalled', 'id', 'pc', 'marker', 'meta', 'metrics:completed',
  'metrics:completed:data', 'metrics:failed', 'metrics:failed:data',
}
for _, name in ipairs(OWN) do redis.call('DEL', queue .. name) end
return 'done'
