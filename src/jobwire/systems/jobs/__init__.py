"""The Redis Streams jobs wire.

contract         the wire as data: keys, fields, states, limits
settings         the section `jobs` of the settings
scripts          the Lua scripts, one file each in lua/
codec            texts of the wire to values of the domain model and back
payload          the checks of a payload
queue            the producer's side: submit, read, list, cancel
submit_batcher   submissions of one turn of the event loop in one call
engine           the worker's side: implements the Engine protocol
blocking_reader  waits for entries
settle_args      outcomes and reports as arguments of scripts
leases           renews leases from a thread
registration     a worker's registration
maintenance      maintenance tasks for the whole fleet
cron_store       the last run of each cron schedule
follow           live events for many readers (subscriptions, events)
registry         live workers and their tasks
stats, depth     the last hour per minute; the number of jobs by state
schema           JSON Schema of the wire
http             all of it over HTTP; only this package uses the gateway
"""
