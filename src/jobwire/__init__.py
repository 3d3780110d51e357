"""Background jobs with live progress.

A job is submitted once, held by one worker at a time, reports while it runs, and is settled
once. A wire is a way of saying that to someone else's program.

    job/       the heart: states, outcomes, the seam. Pure
    wires/     one folder a contract
    handlers/  the work itself
    worker/    holds jobs and runs handlers
    gateway/   the HTTP shell
    valkey/    the toolkit: connection, producer, consumer; usable alone
    objects/   the bucket
    local/     the real servers that `jobwire up` brings along
    cli/       a file a command
"""

__version__ = "0.1.0"
