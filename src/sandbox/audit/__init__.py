"""The record: an append-only audit log that shows whether somebody changed it afterwards."""
