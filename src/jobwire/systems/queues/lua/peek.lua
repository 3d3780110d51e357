-- peek: which queues have a job that may be started or promoted, for workers that are idle.
--
-- A producer that knows only the published contract writes no marker, so idle workers look.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta of the first queue
--   ...      the same of further queues
-- ARGV
--   now_ms, extras
-- RETURNS
--   due      an array: for each queue when it has a job in ms, '0' for now, '' for never
-- CLAUSES B-1 B-20 B-21
-- INCLUDE queue enqueue
local function due_of(q)
  -- Due jobs are promoted also while none may be started.
  if not is_blocked(q) and redis.call('EXISTS', q .. 'wait', q .. 'prioritized') > 0 then
    return '0'
  end
  local next = next_due(q)
  return next and (next <= now and '0' or text(math.floor(next))) or ''
end

local due = {}
for at, key in ipairs(KEYS) do
  -- A queue whose keys are not what they should be does not hide the others.
  local fine, found = pcall(due_of, prefix_of(key))
  due[at] = fine and found or ''
end
return due
