"""Asks: what is refused only because it is not listed waits while the owner is asked (docs/asks.md)."""
