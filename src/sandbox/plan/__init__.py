"""A sandbox as it is to be built, in terms that every engine understands."""
