-- J-53: a script that works on several queues.

-- The default queue and up to 99 others. Where there are more, a random choice: each has its turn.
local function known_queues()
  local names = {'default'}
  local found = redis.pcall('SRANDMEMBER', queues_key, 99)
  for _, name in ipairs(found.err and {} or found) do names[#names + 1] = name end
  return names
end

-- Call `act(cursor, limit)` with each queue selected; it returns where the next call goes on. The
-- arguments from `first` on are queues and their cursors. `scope`: `only` those queues; those `first`
-- and then the known ones; or the `known` ones. Returns queues and cursors in the same form: `-` after
-- the end; and how many of them have not ended.
local function each_queue(first, scope, scan_limit, act)
  local cursors, names, seen, answer, unfinished = {}, {}, {}, {}, 0
  for at = first, #ARGV, 2 do
    cursors[ARGV[at]] = ARGV[at + 1]
    if scope ~= 'known' then names[#names + 1] = ARGV[at] end
  end
  if scope ~= 'only' then
    for _, name in ipairs(known_queues()) do names[#names + 1] = name end
  end
  -- A queue with much to do does not keep the others from their turn.
  local limit = math.max(10, math.floor(scan_limit / math.min(#names, 100)))
  for at = 1, math.min(#names, 100) do
    local name = names[at]
    if not seen[name] then
      seen[name] = true
      select_queue(name)
      local done, cursor = pcall(act, cursors[name] or '-', limit)
      -- A named queue that the server refuses (of another type, not permitted) does not keep the others.
      if not done and name == 'default' then error(cursor) end
      if not done then cursor = '-' end
      answer[#answer + 1], answer[#answer + 2] = name, cursor
      if cursor ~= '-' then unfinished = unfinished + 1 end
    end
  end
  select_queue('default')
  return answer, unfinished
end
