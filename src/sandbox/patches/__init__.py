"""Patches as models write them: reading them, and fitting them to files."""
