"""Container engines with a command of Docker's kind: `docker` and `podman`. See docs/containers.md."""
