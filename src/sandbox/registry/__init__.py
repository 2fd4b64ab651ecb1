"""Which sandboxes exist on this machine: one directory each, no daemon."""
