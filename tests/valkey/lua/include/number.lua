local function is_number(text)
  return tonumber(text) ~= nil
end
