"""Managed sandboxes: kept healthy, started again when they fail, stopped at once when somebody says so."""
