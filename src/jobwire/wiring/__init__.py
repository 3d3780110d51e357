"""Builds the programs from all other packages. Called by the CLI.

    systems       the declaration of a system, and the list of systems
    jobs/         the system `jobs`: the Streams wire with the six tasks
    predictions/  the system `predictions`
    gateway       the HTTP gateway, from the features of the chosen systems
    worker        an App of handlers on the queues of the chosen systems
    installation  `jobwire up`: what it starts
    parts         the states of the parts, from the supervisor to the gateway
    backends      Valkey and the buckets, opened by the systems' needs
    schema        the JSON Schema of the systems
    traces        OpenTelemetry
    keys          new API keys

Each module imports only what its program needs: the supervisor of `up` loads no web framework.
"""
