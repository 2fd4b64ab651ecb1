"""Programs that run inside the interpreter that has what they measure; see `harness.Worker`."""
