"""The only room that knows everyone: it builds things and puts them together. Called by the CLI.

    gateway       the HTTP side: a line a room
    jobs          the gateway's room of the Streams wire
    worker        an app of handlers on the queues that it serves
    ground        the server under every part: connected to, and waited for
    tasks         the contract's six tasks as cards      schema   JSON Schema of the wire
    installation  `jobwire up`: a line a part
    parts         how the parts are, on the way from the supervisor to the gateway
    keys          new API keys

Each module loads only what its program needs: the supervisor of `up` has no web framework in it.
"""
