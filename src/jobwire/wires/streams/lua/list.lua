#!lua flags=allow-oom
-- list: a page of a tenant's jobs, newest first.
--
-- Looks at a bounded number of jobs, however few of them fit, and says where it
-- stopped. Jobs whose keys have expired are dropped from the index on the way.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:index[:<tenant>]
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   tenant, status, task, limit, look, before_ms, before_id
--   ...   names of the fields that are wanted of each job
-- RETURNS
--   ms        when the last job that was looked at was made; empty if there are no more
--   id        its id
--   scanned   how many were looked at
--   rows      the jobs that fit, each: status, task, and the fields wanted
-- CLAUSES J-14
-- INCLUDE keys
local tenant, status, task, limit, look = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local before_ms, before_id = ARGV[6], ARGV[7]
local index = index_key(tenant)

-- By bytes, as the index orders its members; Lua's own comparison goes by the server's locale.
local function smaller(one, other)
  for at = 1, math.min(#one, #other) do
    local left, right = string.byte(one, at), string.byte(other, at)
    if left ~= right then return left < right end
  end
  return #one < #other
end

-- Many jobs may be made in one millisecond: among those of the cursor's, halve until the place is
-- found. The cursor's own job may be gone; its place is not.
local rank = 0
if before_ms ~= '' then
  rank = redis.call('ZCOUNT', index, '(' .. before_ms, '+inf')
  local last = redis.call('ZCOUNT', index, before_ms, '+inf')
  while rank < last do
    local middle = math.floor((rank + last) / 2)
    local member = redis.call('ZRANGE', index, middle, middle, 'REV')[1]
    if smaller(member, before_id) then last = middle else rank = middle + 1 end
  end
end

local rows, gone, scanned, ms, id = {}, {}, 0, '', ''

local function fits(row)
  if row.err then return false end
  if not row[1] and redis.call('EXISTS', job_key(id)) == 0 then
    gone[#gone + 1] = id
    return false
  end
  return (status == '' or row[1] == status) and (task == '' or row[2] == task)
end

while scanned < look and #rows < limit do
  local many = math.min(100, look - scanned)
  local found = redis.call('ZRANGE', index, rank, rank + many - 1, 'REV', 'WITHSCORES')
  for at = 1, #found, 2 do
    id, ms = found[at], found[at + 1]
    rank, scanned = rank + 1, scanned + 1
    local row = redis.pcall('HMGET', job_key(id), 'status', 'task', unpack(ARGV, 8))
    if fits(row) then rows[#rows + 1] = row end
    if #rows == limit then break end
  end
  if #found < 2 * many then break end
end
if rank >= redis.call('ZCARD', index) then ms, id = '', '' end
if #gone > 0 then redis.call('ZREM', index, unpack(gone)) end
return {ms, id, scanned, rows}
