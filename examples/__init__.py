"""Small programs that use jobwire; see README.md."""
