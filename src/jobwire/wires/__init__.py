"""One folder a contract: inside it the wire's own language, at its door the heart's."""
