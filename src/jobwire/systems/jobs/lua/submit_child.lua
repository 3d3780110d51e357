#!lua
-- submit_child: create jobs for running ones that wait for them, each once.
--
-- Only the lease holder of the parent may create them. The parent's record has the child's id from this
-- step on, and a repeated call creates nothing. Children are not refused for a full queue, since their
-- parent was accepted; a full server refuses the whole call.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, job:<id>:steps, jobs:open,
-- jobs:index[:<tenant>], jobs:tenants, jobs:queues, jobs:tasks, jobs:stats:<minute>, jobs:bytes:<tenant>,
-- the queue of the child
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, max_children, max_depth
--   ...   for each child: parent's id, entry, token, child's id, its name in the record, task, payload,
--         queue: of the task, if the worker knows it;
--         before the children of jobs of another queue than the default one: its name, and empty texts
-- RETURNS
--   written       the child exists, now or since an earlier call
--   lost          the parent belongs to another delivery, or has ended
--   cancel        the parent is to be canceled
--   child_limit   the parent has too many children, or they are too deep
--   unknown_task  no worker has or had the task
--   refused       the server refuses to write it
-- CLAUSES J-2 J-3 J-4 J-9 J-33 D-14 D-16
-- INCLUDE keys job fence create bytes
local default_ttl_s, consumer = ARGV[1], ARGV[3]
local max_children, max_depth = tonumber(ARGV[4]), tonumber(ARGV[5])
local answers = {}

-- The queue that the newest worker of the task has registered; nil for an unknown task.
local function registered_queue(task)
  local text = redis.call('HGET', tasks_key, task)
  local known = text and cjson.decode(text)
  return known and (type(known.queue) == 'string' and known.queue or 'default')
end

local function lifetime_of(text)
  local ttl_s = tonumber(text)
  return ttl_s and ttl_s >= 1 and ttl_s <= 2592000 and ttl_s % 1 == 0 and text or default_ttl_s
end

local function submit(id, entry, token, child, name, task, payload, child_queue)
  local parent, refusal = read_fenced(consumer, id, entry, token, 'cancel_ts', 'tenant', 'traceparent',
    'depth', 'children')
  if refusal then return 'lost' end
  if parent.cancel_ts then return 'cancel' end
  if redis.call('HEXISTS', steps_key(id), 'k:' .. name) == 1 then return 'written' end
  local depth, children = (tonumber(parent.depth) or 0) + 1, (tonumber(parent.children) or 0) + 1
  if depth > max_depth or children > max_children then return 'child_limit' end
  if child_queue == '' then child_queue = registered_queue(task) end
  if not child_queue then return 'unknown_task' end

  if redis.call('EXISTS', job_key(child)) == 0 then
    local here, tenant, ttl_s = queue_name, parent.tenant or '', lifetime_of(parent.ttl_s)
    select_queue(child_queue)
    local done, failure = pcall(create, child, task, payload, ttl_s, '0', '', tenant, 1, 0)
    if not done then
      -- Without an entry it would never run, and a later call would take it for submitted.
      redis.call('DEL', job_key(child), events_key(child))
      error(failure)
    end
    local extras = {'parent', id .. ' ' .. name, 'depth', depth}
    if queue_suffix ~= '' then extras[5], extras[6] = 'queue', queue_name end
    for _, field in ipairs({'tenant', 'traceparent'}) do
      if parent[field] and parent[field] ~= '' then
        extras[#extras + 1], extras[#extras + 2] = field, parent[field]
      end
    end
    redis.call('HSET', job_key(child), unpack(extras))
    select_queue(here)
    if redis.call('EXISTS', bytes_key(tenant)) == 1 then
      local span = bytes().span_of(now_ms + ttl_s * 1000)
      bytes().add(tenant, span, bytes().of(#payload))
    end
  end
  redis.call('HSET', steps_key(id), 'k:' .. name, cjson.encode({child, task}))
  local expiry = redis.call('PEXPIRETIME', job_key(id))
  if expiry > 0 then redis.call('PEXPIREAT', steps_key(id), expiry) end
  redis.call('HSET', job_key(id), 'children', children, 'steps', redis.call('HLEN', steps_key(id)))
  return 'written'
end

for at = 6, #ARGV, 8 do
  if ARGV[at + 1] == '' then
    select_queue(ARGV[at])
  else
    local here = queue_name
    answers[#answers + 1] = isolated(submit, unpack(ARGV, at, at + 7))
    select_queue(here)
  end
end
write_indexes()
return answers
