"""What of the host's files is hidden from tenants or frozen, and what the host would run of theirs."""
