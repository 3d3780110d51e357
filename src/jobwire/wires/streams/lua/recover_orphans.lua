#!lua flags=allow-oom
-- recover_orphans: find what is pending under this worker's name though it does not know it.
--
-- A start whose answer was lost is answered again, as it was; an entry that was
-- read and not started is started now. So a broken connection costs no lease time, and
-- what is answered has its whole lease before it.
-- With a patience, only what nobody has kept for so long: a living worker's net for
-- what no reclaim of its own takes from it.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events,
-- idempotency:<name>, jobs:open, jobs:index[:<tenant>], jobs:tenants, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, limit, token, idle_ms
--   ...   what is known: tokens, and entries that were read and are about to be started
-- RETURNS
--   started   as take answers it
--   dropped   as take answers it
-- CLAUSES J-9 J-30
-- INCLUDE keys state fence entry start
local consumer, limit, token, idle_ms = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local known = {}
for at = 7, #ARGV do known[ARGV[at]] = true end

local function look_at(entry, id, task, payload)
  local owner = id and redis.pcall('HGET', job_key(id), 'owner')
  if type(owner) == 'string' and known[owner] then return end
  local row = runnable(entry, id)
  if row then redis.call('XCLAIM', queue, 'workers', consumer, 0, entry, 'JUSTID') end
  if row and row[1] == 'running' and owner and owner ~= '' and row[3] == entry then
    answer(entry, id, task, payload, row, owner)
  elseif row then
    start(entry, id, task, payload, row, token, consumer)
  end
end

local list = redis.pcall('XPENDING', queue, 'workers', 'IDLE', idle_ms, '-', '+',
  limit + #ARGV, consumer)
if list.err then list = {} end
for _, row in ipairs(list) do
  local entry = row[1]
  if not known[entry] and #started < limit then
    local rows = redis.call('XRANGE', queue, entry, entry)
    if not rows[1] then
      clear(entry)
    else
      local found = fields_of(rows[1][2])
      attend(look_at, entry, found.job_id, found.task, found.payload)
    end
  end
end
tidy()
return {started, dropped}
