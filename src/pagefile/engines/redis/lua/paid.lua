#!lua flags=allow-oom
-- The files were written again: nothing is left of what was removed before, unless more was since.
--
-- KEYS  traces
-- ARGV  the last removal known before
local noted = redis.call('GET', KEYS[1])
if not noted or noted == ARGV[1] then
  redis.call('SET', KEYS[1], '0')
end
return redis.status_reply('OK')
