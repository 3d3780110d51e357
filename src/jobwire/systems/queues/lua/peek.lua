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
local due = {}
for at, key in ipairs(KEYS) do
  local q = string.sub(key, 1, -(#'meta' + 1))
  -- Due jobs are promoted also while none may be started.
  if not is_blocked(q) and redis.call('EXISTS', q .. 'wait', q .. 'prioritized') > 0 then
    due[at] = '0'
  else
    local next = next_due(q)
    due[at] = next and (next <= now and '0' or text(math.floor(next))) or ''
  end
end
return due
