"""What may be signed. Pure: callers pass the time's windows, the hash function and decoded calls."""
