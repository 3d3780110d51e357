"""The toolkit's scripts: one file per verb, with a header that is parsed and checked."""
