"""A whole installation as processes: a server, gateways, workers; for tests from the outside."""
