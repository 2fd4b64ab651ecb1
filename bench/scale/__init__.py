"""A simulated cluster: many nodes, many sandboxes, fed with costs that were measured on real servers. docs/scale.md."""
