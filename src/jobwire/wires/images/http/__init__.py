"""The image wire over HTTP: two features that one gateway or two mount (I-10 … I-12, I-20).

    api       announce, read, list, delete
    events    live status
    uploads   the upload itself
    schemas   request and response bodies, as types
    problems  the errors of these routes

`wiring` builds the parts and passes the features to a gateway.
"""
