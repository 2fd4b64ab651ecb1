"""What may be signed. Pure: callers pass the counts per hour and day, the hash function and decoded calls."""
