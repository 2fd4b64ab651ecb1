"""`sandbox serve`: the HTTP API. It parses, calls and prints; policy is decided in lower layers. See docs/server.md."""
