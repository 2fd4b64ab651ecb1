"""The record: what happened, in a form that shows when somebody changed it afterwards."""
