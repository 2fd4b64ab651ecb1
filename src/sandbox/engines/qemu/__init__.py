"""The engine `qemu`: a virtual machine as the tenant of an ordinary room (docs/microvm.md)."""
