"""What a project is made of, and what a sandbox in it would need: behind `sandbox init`.

The tables say what to look for (`tools.py`, `agents.py`, `ci.py`, `sensitive.py`), `reading.py` is the only way to the
project's files, `scan.py` looks, and `proposal.py` says what to write. Nothing here writes.
"""
