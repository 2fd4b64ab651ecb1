"""`sandbox serve`: the HTTP API. It parses, calls and prints; what may happen is decided below. See docs/server.md."""
