"""Adapters for tools that people already use. Each imports its framework when it is first used."""
