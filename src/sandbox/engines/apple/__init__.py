"""Apple's `container`: each container is a Linux virtual machine of its own."""
