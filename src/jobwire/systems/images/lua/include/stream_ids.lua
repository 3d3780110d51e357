-- before: whether an entry's id is lower than another one; every id is lower than '+'.
local function before(left, right)
  if right == '+' then return true end
  local left_ms, left_seq = string.match(left, '(%d+)-(%d+)')
  local right_ms, right_seq = string.match(right, '(%d+)-(%d+)')
  if left_ms ~= right_ms then return tonumber(left_ms) < tonumber(right_ms) end
  return tonumber(left_seq) < tonumber(right_seq)
end
