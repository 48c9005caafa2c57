#!lua flags=allow-oom
-- Take the turn before reading what a commit depends on, or give it back unused.
--
-- KEYS  queue, turn, turns
-- ARGV  "take" or "pass", token, queued (0 or 1), lease in ms
-- Gives {"yours"}, {"wait", last turn} or {"passed"}.
local owner, token = redis.call('GET', KEYS[2]), ARGV[2]

if ARGV[1] == 'take' then
  if owner and owner ~= token then
    if ARGV[3] == '0' then
      redis.call('RPUSH', KEYS[1], token)
    end
    local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
    return {'wait', last[1] and last[1][1] or '0-0'}
  end
  redis.call('LREM', KEYS[1], 0, token)
  redis.call('SET', KEYS[2], token, 'PX', ARGV[4])
  return {'yours'}
end

redis.call('LREM', KEYS[1], 0, token)
if owner == token then
  local following = redis.call('LPOP', KEYS[1])
  if following then
    redis.call('SET', KEYS[2], following, 'PX', ARGV[4])
    redis.call('XADD', KEYS[3], 'MAXLEN', 1, '*', 'n', following)
  else
    redis.call('DEL', KEYS[2])
  end
end
return {'passed'}
