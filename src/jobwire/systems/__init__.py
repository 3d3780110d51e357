"""One folder per system; names inside a system follow the protocol of its wire.

    system        the declaration of a system, and the list of systems
    backends      Valkey and the buckets, opened by the systems' needs
    jobs/         the Streams wire with the six tasks
    queues/       BullMQ's wire
    images/       records, uploads, photos
    predictions/  the photo bot, and its demo

A folder has three layers, lowest first: the wire (`contract` is its data), `http/`, and the modules
that assemble it for the programs: `system`, `feature`, `worker`, `doctor`.
"""
