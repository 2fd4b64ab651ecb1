"""A screen, keyboard, mouse and sound of the sandbox's own: docs/desktop.md.

Everything that draws or sounds runs inside the walls. The host is only an X client of the display inside, reached over
its Unix socket. Programs inside can replace that display, so what it answers is checked as anything else from there.
"""
