#!lua flags=allow-oom
-- take: start the next job under a lock of the caller's.
--
-- Delayed jobs that are due are promoted first, also while the queue is paused.
--
-- KEYS
--   meta     hash    <prefix>:<queue>:meta
-- ARGV
--   now_ms, extras, token, lock_ms, limit_max, limit_ms, name, worker_id
-- RETURNS
--   job       its id and the fields of its hash follow
--   limited   the rate limit is reached; for how many ms follows
--   blocked   the queue is paused, or runs as many jobs as it may
--   empty     nothing waits; when the next delayed job is due follows, 0 if there is none
-- CLAUSES B-2 B-8 B-10 B-19
-- INCLUDE queue events enqueue fetch
return fetch(queue, caller(3))
