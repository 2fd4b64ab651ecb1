"""The kernel's FUSE protocol, spoken here in Python on the descriptor the guest mounted and handed over.

`wire` has the shapes, `nodes` what the kernel remembers of the tree, `operations` what each request does, `session` the
threads that read requests and see to it that each is answered in time.
"""
