"""The kernel's FUSE protocol in Python, on the descriptor that the guest mounted and passed to us.

`structs` has the protocol's structures, `nodes` and `tree` what the kernel knows, `operations` and the `*_handlers`
what each request does, `session` the threads that read requests and make sure that each gets a reply in time.
"""
