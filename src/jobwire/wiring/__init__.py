"""Builds the programs from all other packages. Called by the CLI.

    gateway       the HTTP gateway: one line per feature
    jobs          the gateway's feature of the Streams wire
    worker        an App of handlers on its queues
    installation  `jobwire up`: one line per part
    parts         the states of the parts, from the supervisor to the gateway
    backends      Valkey and the bucket: connect and wait, or find them
    schema        the six tasks and the JSON Schema of the wire
    traces        OpenTelemetry
    keys          new API keys

Each module imports only what its program needs: the supervisor of `up` loads no web framework.
"""
