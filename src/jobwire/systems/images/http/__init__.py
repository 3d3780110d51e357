"""The image wire over HTTP: two features that one gateway or two mount (I-10 … I-12, I-20).

    api       announce, read, list, delete
    picture   the published photo
    events    live status
    uploads   the upload itself

The assembly of the system builds the parts and passes the features to a gateway.
"""
