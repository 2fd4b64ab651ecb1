"""Code sessions: an interpreter inside the sandbox that keeps its state between calls."""
