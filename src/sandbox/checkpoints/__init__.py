"""Saved sandboxes that other sandboxes start from: docs/checkpoints.md."""
