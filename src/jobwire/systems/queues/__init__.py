"""The BullMQ wire: queues that are shared with Node programs, served by scripts of our own."""
