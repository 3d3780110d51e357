"""Builds the programs from the systems and all other packages. Called by the CLI.

    gateway       the HTTP gateway, from the features of the chosen systems
    worker        an App of handlers on the queues of the chosen systems
    installation  `jobwire up`: what it starts
    parts         the states of the parts, from the supervisor to the gateway
    page          the web page, /v1/settings and /v1/backends
    schema        the JSON Schema of the systems
    traces        OpenTelemetry
    keys, photo   what the CLI uses of the gateway and of the photo handlers

Each module imports only what its program needs: the supervisor of `up` loads no web framework.
"""
