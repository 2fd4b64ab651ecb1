"""The sandbox's own screen, keyboard, mouse and sound: docs/desktop.md.

Everything that draws or makes sound runs inside the walls. The host is only an X client of the display inside, over its
Unix socket. Programs inside can replace that display, so its answers are checked like everything else from inside.
"""
