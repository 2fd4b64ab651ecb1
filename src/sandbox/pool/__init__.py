"""Sandboxes built ahead, each handed out once: docs/pools.md."""
