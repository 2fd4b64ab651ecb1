"""A virtual machine in a room, whichever program runs it: what QEMU and Firecracker have in common."""
