"""Runs inside the sandbox: reports what happens in a directory. Needs only the standard library.

Arguments: the directory, and "1" to watch those below it too. Output: one JSON line per event, {"name", "type"}. For
each line of input, prints {"mark": n} after all events so far. Ends when its input ends.
"""

import ctypes
import json
import os
import select
import struct
import sys

TYPES = [(0x100, "CREATE"), (0x80, "CREATE"), (0x2, "WRITE"), (0x200, "REMOVE"), (0x40, "RENAME"), (0x4, "CHMOD")]
WANTED, IS_DIR, ONLY_DIR, DONT_FOLLOW = 0x3C6, 0x40000000, 0x01000000, 0x02000000
libc = ctypes.CDLL(None, use_errno=True)
top, deep = sys.argv[1], sys.argv[2] == "1"
queue = libc.inotify_init1(os.O_NONBLOCK)
names = {}


def watch(name):
    number = libc.inotify_add_watch(queue, os.fsencode(os.path.join(top, name)), WANTED | ONLY_DIR | DONT_FOLLOW)
    if number < 0:
        if not name:
            sys.exit(os.strerror(ctypes.get_errno()))
        return
    names[number] = name
    if deep:
        try:
            for one in os.scandir(os.path.join(top, name)):
                if one.is_dir(follow_symlinks=False):
                    watch(os.path.join(name, one.name))
        except OSError:
            pass  # it was removed meanwhile


def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")


def drain():
    while True:
        try:
            data = os.read(queue, 1 << 18)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, mask, _, length = struct.unpack_from("iIII", data, at)
            name = os.fsdecode(data[at + 16 : at + 16 + length].rstrip(b"\0"))
            at += 16 + length
            if number not in names or not name:
                continue
            name = os.path.join(names[number], name)
            if deep and mask & IS_DIR and mask & 0x180:
                watch(name)
            for bit, kind in TYPES:
                if mask & bit:
                    say(name=os.fsencode(name).decode("utf-8", "replace"), type=kind)


watch("")
asked = 0
say(mark=0)
sys.stdout.flush()
poll = select.poll()
poll.register(queue, select.POLLIN)
poll.register(0, select.POLLIN | select.POLLHUP)
while True:
    ready = [number for number, _ in poll.poll()]
    given = os.read(0, 4096) if 0 in ready else None
    drain()
    if given == b"":
        break
    for _ in range((given or b"").count(b"\n")):
        asked += 1
        say(mark=asked)
    sys.stdout.flush()
