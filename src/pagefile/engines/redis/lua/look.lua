#!lua flags=no-writes
-- Where a tenant is, what was committed since, and the newest streams of some names: one moment.
--
-- KEYS  head, commits, names, streams
-- ARGV  known head, known position, how many commits to tell of, then names
-- Gives {head, commits since (none when the head is the known one), streams in the order of names}.
local head = redis.call('GET', KEYS[1]) or ''
local since = {}
if head ~= ARGV[1] and ARGV[3] ~= '0' then
  since = redis.call('XRANGE', KEYS[2], '(' .. ARGV[2] .. '-0', '+', 'COUNT', ARGV[3])
end
local streams = {}
for at = 4, #ARGV do
  local number = redis.call('HGET', KEYS[3], ARGV[at])
  streams[at - 3] = number and redis.call('HGET', KEYS[4], number)
end
return {head, since, streams}
