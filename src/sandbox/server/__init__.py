"""`sandbox serve`: the HTTP API. It parses, calls and prints; lower layers decide what is allowed. See docs/server.md."""
