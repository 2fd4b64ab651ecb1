"""Signatures by a key that stays on the host: docs/signing.md.

`service.py` decides, `ledger.py` remembers, `backends/` sign. `client.py` is how the gate, the server and the command
line ask. What starts the process that holds the key, behind walls, is `sandbox.signer`.
"""
