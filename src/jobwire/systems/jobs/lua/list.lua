#!lua flags=allow-oom
-- list: a page of a tenant's jobs, newest first.
--
-- Reads a bounded number of jobs, however few of them match, and returns where it
-- stopped: also before the job whose fields would make the page too large. Jobs whose keys have
-- expired are removed from the index.
--
-- Also touches, below the queue's prefix: job:<id>, jobs:index[:<tenant>], jobs:delayed,
-- jobs:suspended
--
-- KEYS
--   queue    stream  jobs:stream
-- ARGV
--   tenant, status, task, text, delayed, limit, scan_limit, before_ms, before_id
--   ...   names of further fields of each job
-- RETURNS
--   ms        when the last job that was read was created; empty if there are no more
--   id        its id
--   scanned   how many were read
--   total     how many jobs the index has
--   rows      the jobs that match, each: status, task, the further fields, due time if delayed or suspended
--             or nothing, and its time in the index
-- CLAUSES J-14
-- INCLUDE keys
local tenant, status, task, text = ARGV[1], ARGV[2], ARGV[3], string.lower(ARGV[4])
local delayed, limit, scan_limit = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local before_ms, before_id = ARGV[8], ARGV[9]
local index = index_key(tenant)

-- By bytes, as the index orders its members; Lua's own comparison goes by the server's locale.
local function is_smaller(left, right)
  for at = 1, math.min(#left, #right) do
    local left_byte, right_byte = string.byte(left, at), string.byte(right, at)
    if left_byte ~= right_byte then return left_byte < right_byte end
  end
  return #left < #right
end

-- Many jobs may be created in one millisecond: a binary search among those of the cursor's millisecond
-- finds the position, also where the cursor's own job is gone.
local rank = 0
if before_ms ~= '' then
  rank = redis.call('ZCOUNT', index, '(' .. before_ms, '+inf')
  local last = redis.call('ZCOUNT', index, before_ms, '+inf')
  while rank < last do
    local middle = math.floor((rank + last) / 2)
    local member = redis.call('ZRANGE', index, middle, middle, 'REV')[1]
    if is_smaller(member, before_id) then last = middle else rank = middle + 1 end
  end
end

-- Own fields are shorter than LONGEST; of a foreign one that is not, the beginning is read.
local LONGEST, PAGE_BYTES = 65536 + 1024, 1048576
local rows, gone, scanned, ms, id, size, full = {}, {}, 0, '', '', 0, false

local function contains(value) return string.find(string.lower(value), text, 1, true) ~= nil end

local function matches(row)
  if row.err then return false end
  local job_status, job_task = row[1], row[2]
  if not job_status and redis.call('EXISTS', job_key(id)) == 0 then
    gone[#gone + 1] = id
    return false
  end
  return (status == '' or job_status == status) and (task == '' or job_task == task)
    and (text == '' or contains(id) or contains(job_task or ''))
end

local function score_of(key)
  local score = redis.pcall('ZSCORE', key, id)
  return type(score) == 'string' and score or nil
end

-- When a waiting job is due, and whether it is suspended; nil if it is in the queue. It costs commands
-- for waiting jobs only.
local function due_of(row)
  if row[1] ~= 'queued' then return nil, false end
  local due = score_of(delayed_key)
  if due then return due, false end
  due = score_of(suspended_key)
  return due, due ~= nil
end

local function size_of(row)
  local sum = 0
  for at = 1, #ARGV - 7 do
    if row[at] and #row[at] > LONGEST then row[at] = string.sub(row[at], 1, LONGEST) end
    sum = sum + (row[at] and #row[at] or 0)
  end
  return sum
end

local function add(row)
  local due, is_suspended = due_of(row)
  if delayed ~= '' and (is_suspended or (due ~= nil) ~= (delayed == '1')) then return end
  row[#ARGV - 6], row[#ARGV - 5] = due or false, ms
  rows[#rows + 1] = row
end

while scanned < scan_limit and #rows < limit do
  local page = math.min(100, scan_limit - scanned)
  local found = redis.call('ZRANGE', index, rank, rank + page - 1, 'REV', 'WITHSCORES')
  for at = 1, #found, 2 do
    local before = { id, ms }
    id, ms = found[at], found[at + 1]
    local row = redis.pcall('HMGET', job_key(id), 'status', 'task', unpack(ARGV, 10))
    local matching = matches(row)
    if matching then size = size + size_of(row) end
    if size > PAGE_BYTES and #rows > 0 then
      id, ms, full = before[1], before[2], true
      break
    end
    rank, scanned = rank + 1, scanned + 1
    if matching then add(row) end
    if #rows == limit then break end
  end
  if full or #found < 2 * page then break end
end
local total = redis.call('ZCARD', index)
if rank >= total then ms, id = '', '' end
if #gone > 0 then redis.call('ZREM', index, unpack(gone)) end
return {ms, id, scanned, total, rows}
