"""Saved sandboxes that others start from: docs/checkpoints.md."""
