"""Managed sandboxes: kept healthy, restarted when they fail, stopped at once on request."""
