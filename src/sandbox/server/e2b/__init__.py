"""The HTTP API of E2B's clients, over the same sandboxes, tokens and limits as the rest of the server.

An E2B client talks to three services: the control plane (`control.py`), the daemon in each sandbox (`processes.py`,
`filesystem.py`, `transfer.py`), and the code interpreter in each sandbox (`contexts.py`). Here they are one server, and
headers say which sandbox a request is for. docs/integrations/e2b.md is the page for users.
"""
