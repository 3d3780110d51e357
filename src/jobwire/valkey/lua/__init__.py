"""The toolkit's scripts: one file a verb, with a header that is read and checked."""
