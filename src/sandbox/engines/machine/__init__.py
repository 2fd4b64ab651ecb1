"""A virtual machine in a room: what QEMU and Firecracker have in common."""
