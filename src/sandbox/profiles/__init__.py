"""Profiles: what makes a known program (claude, codex, …) at home in a sandbox. Data files, and what is made of them."""
