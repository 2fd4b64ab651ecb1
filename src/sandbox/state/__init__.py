"""What a tenant's home keeps from run to run: directories of the sandbox's own, which no program of the host reads."""
