"""The kernel's FUSE protocol in Python, on the descriptor that the guest mounted and passed to us.

`structs` has the protocol's structures. `nodes` and `tree` hold what the kernel knows. `operations` and the
`*_handlers` do what each request asks. `session` has the threads that read requests, and makes sure that each gets a
reply in time.
"""
