"""The `qemu` engine: a virtual machine as the tenant of an ordinary room (docs/microvm.md)."""
