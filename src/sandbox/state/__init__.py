"""What a tenant's home keeps from run to run: directories in the sandbox home, which no program of the host reads."""
