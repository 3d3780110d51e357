"""The HTTP server: what all routes have in common.

    app        the ASGI application, built from the routes of all features
    feature    what one system adds: routes, health checks, metrics
    routes     hot routes: plain ASGI              router     FastAPI routes, each with its scope
    access     scope or verifier of a route        admission  checks before a route runs
    request    one request and its response        parameters paging and others of several wires
    auth       API keys, tenants, scopes           tokens     short-lived tokens for EventSource
    tenants    who sees what belongs to whom       static_files  files of a page
    cors       pages of other origins
    loopback   Host and Origin checks              limits     request rate and streams per key
    problems   error responses (RFC 9457)          failures   exceptions as problems
    streams    all open event streams              sse        the SSE format, and one stream
    health     /livez /readyz /version             metrics    /metrics
    openapi    one document for all routes         tracing    OpenTelemetry spans
    server     uvicorn's server                    connection, response_cycle  limits per client
    uvicorn_internals  the private parts of uvicorn in use, and the check of its version

Built by `wiring`, which passes the features. It knows nothing of what a feature does.
"""
