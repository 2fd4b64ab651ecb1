"""The `firecracker` engine: a room with a Firecracker microVM in it, for hosts with KVM."""
