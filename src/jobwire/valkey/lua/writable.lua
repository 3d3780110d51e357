#!lua
-- writable: check whether the server would accept a write now.
--
-- Writes nothing. Declared as a script that may write, so that the server refuses it
-- exactly when it would refuse a write: out of memory, a replica, a failed disk.
--
-- RETURNS
--   yes   a write would be accepted
return 'yes'
