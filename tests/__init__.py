"""The proof: everything here talks to jobwire from the outside."""
