"""The signer as a program: `sandbox sign serve`. It decides here and keeps the key in another process."""
