-- How a caller whose reply was lost is answered when it asks again: for a minute, by its token.
local function remember_verb(q, id, token, verb)
  if token == '0' then return end
  redis.call('SET', q .. 'jobwire:settled:' .. token, '@' .. verb .. '\n' .. id, 'PX', 60000)
end

-- The answer to a caller that no longer has the lock.
local function refused_verb(q, id, token, verb, word)
  if redis.call('GET', q .. 'jobwire:settled:' .. token) == '@' .. verb .. '\n' .. id then
    return { 'ok' }
  end
  return { word }
end
