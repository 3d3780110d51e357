"""The Redis Streams jobs wire.

contract  the wire as data: keys, fields, words, limits
settings  what an installation may choose
scripts   the Lua verbs, a file each in lua/
codec     texts of the wire to values of the heart and back
payload   what a payload must be to be accepted
queue     a producer's end: submit, get, list, cancel
engine    a worker's end: the seam of the heart, kept
leases    the keeper: renews leases from a thread
duties    housekeeping for the whole fleet
follow    live events for many watchers (watches), entry by entry (events)
census    who is there and what they can do; minutes: the last hour; depth: how much there is to do
schema    JSON Schema of the wire
http      all of it over HTTP; this folder alone knows the gateway
"""
