#!lua
-- Store a group of commits if the tenant is still where they were computed, and pass the turn on.
--
-- KEYS  head, queue, turn, turns, commits, then every key that is written to
-- ARGV  expected head, new head, token, queued (0 or 1), lease in ms,
--       last known position, how many commits to tell of, then the commands:
--       name, number of its key, count of arguments, arguments
-- Gives OK, {"moved", head, commits since} or {"wait", last turn}. Whoever finds the
-- tenant moved gets the turn: until the lease is over nobody else may commit.
local found, token = redis.call('MGET', KEYS[1], KEYS[3]), ARGV[3]
local head, owner = found[1] or '', found[2]

if owner and owner ~= token then
  if ARGV[4] == '0' then
    redis.call('RPUSH', KEYS[2], token)
  end
  local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)
  return {'wait', last[1] and last[1][1] or '0-0'}
end

if head ~= ARGV[1] then
  redis.call('SET', KEYS[3], token, 'PX', ARGV[5])
  if ARGV[4] == '1' then
    redis.call('LREM', KEYS[2], 0, token)
  end
  return {'moved', head, redis.call('XRANGE', KEYS[5], '(' .. ARGV[6] .. '-0', '+', 'COUNT', ARGV[7])}
end

-- The commands.
local at, last = 8, #ARGV
while at < last do
  local stop = at + 2 + tonumber(ARGV[at + 2])
  redis.call(ARGV[at], KEYS[tonumber(ARGV[at + 1])], unpack(ARGV, at + 3, stop))
  at = stop + 1
end
-- The head, last: a script that breaks off leaves it as it was.
redis.call('SET', KEYS[1], ARGV[2])

if ARGV[4] == '1' then
  redis.call('LREM', KEYS[2], 0, token)
end
-- Where nobody had the turn nobody waits for it; those whose holder died come by themselves.
if owner then
  local following = redis.call('LPOP', KEYS[2])
  if following then
    redis.call('SET', KEYS[3], following, 'PX', ARGV[5])
    redis.call('XADD', KEYS[4], 'MAXLEN', 1, '*', 'n', following)
  else
    redis.call('DEL', KEYS[3])
  end
end
return redis.status_reply('OK')
