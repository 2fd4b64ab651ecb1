"""Signatures by a key that stays on the host: docs/signing.md.

`service.py` decides, `ledger.py` remembers, `backends/` sign. The gate, the server and the command line ask through
`client.py`. `sandbox.signer` starts the process that holds the key, behind walls.
"""
