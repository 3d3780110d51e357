"""The HTTP shell: everything that every route has in common.

    app        one ASGI application out of the rooms' routes
    room       what a part of the product hands to the shell
    routes     hot routes: plain ASGI, as fast as it gets
    router     FastAPI routes, each with its scope
    call       one request: who asks, its body, its answer
    auth       API keys, tenants, scopes        tokens   short-lived tokens for EventSource
    guard      Host and Origin on loopback      limits   rates and counts by key
    problems   every error as RFC 9457          openapi  one document over all routes
    streams    all open event streams           sse      their wire, and one of them
    health     /livez /readyz /version          metrics  /metrics
    server     uvicorn, with limits on what a client may do to it

Called by `wiring`, which hands the rooms in. It never knows what a room does.
"""
