#!lua flags=allow-oom
-- pause: let no worker start another job.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras
-- RETURNS
--   ok       the queue is paused; what waits stays where it is
-- CLAUSES B-8 B-10
-- INCLUDE queue events
redis.call('HSET', queue .. 'meta', 'paused', 1)
redis.call('DEL', queue .. 'marker')
emit(queue, 'paused')
return 'ok'
