-- summaries: a page of the jobs in a state without their data, for lists. Writes nothing.
--
-- With `wanted` only jobs that have it in their name or id; with `only` the job of this id. At most
-- `scan` jobs are looked at and at most `most` returned; how many were looked at is where the
-- next page begins.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, state, first, scan, most, ascending, wanted, only
-- RETURNS
--   page     how many jobs were searched, then of each job: id, due time in ms, opts, fields
-- CLAUSES B-8 B-12
-- INCLUDE queue states
local state, first, scan = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local most, ascending, wanted, only = tonumber(ARGV[6]), ARGV[7] == '1', ARGV[8], ARGV[9]
local LONGEST, LONGEST_OPTS = 400, 4096
local FIELDS = {
  'name', 'timestamp', 'processedOn', 'finishedOn', 'ats', 'atm', 'stc', 'priority', 'progress',
  'failedReason', 'pb', 'parentKey', 'rjk',
}
local ids = only ~= '' and { only } or ids_of(state, first, scan, ascending)

local function due_ms(id)
  if state ~= 'delayed' then return false end
  local score = tonumber(redis.call('ZSCORE', queue .. state, id))
  if not score then return false end
  return text(score < RAW_BELOW and score or math.floor(score / SHIFT))
end

local function has(value)
  return value and string.find(string.lower(value), wanted, 1, true)
end

local page, looked = { 0 }, 0
for _, id in ipairs(ids) do
  looked = looked + 1
  local key = queue .. id
  if wanted == '' or has(id) or has(redis.call('HGET', key, 'name')) then
    local fields = redis.call('HMGET', key, unpack(FIELDS))
    for at, value in ipairs(fields) do
      if value and #value > LONGEST then fields[at] = string.sub(value, 1, LONGEST) end
    end
    local short = redis.call('HSTRLEN', key, 'opts') <= LONGEST_OPTS
    page[#page + 1] = { id, due_ms(id), short and redis.call('HGET', key, 'opts'), fields }
    if #page > most then break end
  end
end
page[1] = looked
return page
