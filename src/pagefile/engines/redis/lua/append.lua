-- Put in place of the commands of `commit.lua` for a lone append, which needs these three.
--
-- KEYS  head, queue, turn, turns, commits, streams, the records of the log
-- ARGV  from 8 on: place of the commit, the commit, number of the record, the record,
--       number of the log, the log
redis.call('XADD', KEYS[5], ARGV[8], 'd', ARGV[9])
redis.call('HSET', KEYS[7], ARGV[10], ARGV[11])
redis.call('HSET', KEYS[6], ARGV[12], ARGV[13])
