"""The same work on each job queue: see `bench.jobs`.

Each runs as `PROGRAM URL SERVER_PID MODE N` and prints one JSON object. MODE `throughput`: submit
N no-op jobs with 100 callers, then run them with 100 slots; CPU µs per job of client and server.
MODE `latency`: N jobs at about 100/s; ms from submit to the handler's first line.
"""
