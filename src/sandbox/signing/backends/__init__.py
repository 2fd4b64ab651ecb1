"""What makes signatures: a key in a process of its own, a program of the host, a remote signer."""
