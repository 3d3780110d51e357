"""The HTTP server: what all routes have in common.

    app        the ASGI application, built from the routes of all features
    feature    what one system adds: routes, health checks, metrics, a view
    route      serves the operations of `api`      query_reader  the query of an operation
    route_table  finds the route of a request
    access     scope or verifier of a route        admission  checks before a route runs
    request    one request and its response        prefer     `Prefer: wait`
    auth       API keys, tenants, scopes           tenants    who sees what belongs to whom
    tokens     short-lived tokens for EventSource  stream_tokens  /v1/stream-tokens
    loopback   Host and Origin checks              cors       pages of other origins
    limits     request rate and streams per key    problems   error responses (RFC 9457)
    me         /v1/me
    streams    all open event streams              sse        the SSE format, and one stream
    health     /livez /readyz /version             metrics    /metrics
    openapi    one document for all routes; operation_docs describes one operation in it
    api_page   /docs
    static_files  files of a page                  conditional  ETag and If-None-Match
    tracing    OpenTelemetry spans                 cached_value  a reading that many requests share
    server     listens, drains                     connection, flow_control  one client, with limits
    response_cycle  one request as ASGI has it
    accounts   whose connections and requests are, and who gives when there are too many
    proxies    addresses behind proxies            refusal_log  requests refused without a proof

    system_view   what each system shows; joined reads the views of all systems
    overview      /v1/overview /v1/failures /v1/search; failure_kinds groups failed jobs
    fleet         /v1/workers /v1/stats; minute_counts has what a view counts
    wire_view     the keys of a job on its server, in one form for all wires

Built by `programs`, which passes the features. It knows nothing of what a feature does.
"""
