"""The toolkit, from the outside."""
