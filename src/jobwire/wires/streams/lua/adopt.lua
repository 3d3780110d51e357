#!lua flags=allow-oom
-- adopt: find what is pending under this worker's name though it does not know it.
--
-- A start whose answer was lost is answered again, as it was; an entry that was
-- read and not started is started now. So a broken connection costs no lease time.
--
-- Also touches, below the queue's prefix: job:<id>, job:<id>:events, jobs:open,
-- jobs:index[:<tenant>], jobs:tenants, jobs:stats:<minute>
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   default_ttl_s, max_events, consumer, limit, token
--   ...   what is known: tokens, and entries that were read and are about to be started
-- RETURNS
--   started   as take answers it
--   dropped   as take answers it
-- CLAUSES J-9 J-30
-- INCLUDE keys life fence entry start
local consumer, limit, token = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local known = {}
for at = 6, #ARGV do known[ARGV[at]] = true end

local list = redis.pcall('XPENDING', queue, 'workers', '-', '+', limit + #ARGV, consumer)
if list.err then list = {} end
for _, row in ipairs(list) do
  local entry = row[1]
  if not known[entry] and #started < limit then
    local rows = redis.call('XRANGE', queue, entry, entry)
    if not rows[1] then
      clear(entry)
    else
      local found = fields_of(rows[1][2])
      local owner = found.job_id and redis.pcall('HGET', job_key(found.job_id), 'owner')
      if type(owner) ~= 'string' or not known[owner] then
        local row = runnable(entry, found.job_id)
        if row and row[1] == 'running' and owner and owner ~= '' and row[3] == entry then
          answer(entry, found.job_id, found.task, found.payload, row, owner)
        elseif row then
          start(entry, found.job_id, found.task, found.payload, row,
            token .. '-' .. (#started + 1), consumer)
        end
      end
    end
  end
end
tidy()
return {started, dropped}
