"""Profiles: data files that make a known program (claude, codex, …) at home in a sandbox, and what is made of them."""
