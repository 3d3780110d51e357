"""The toolkit on the real server, and what befalls it."""
