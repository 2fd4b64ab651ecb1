"""Structures and numbers of the FUSE protocol (linux/fuse.h): those that we use."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

MAJOR, MINOR = 7, 31
ROOT = 1

# Reads and writes of up to 1 MiB, the kernel's default maximum (256 pages).
MAX_PAGES = 256
MAX_WRITE = MAX_PAGES * 4096
BUFFER = MAX_WRITE + 4096


class FuseOp(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45


class Init:
    """Flags of INIT."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    BIG_WRITES = 1 << 5
    AUTO_INVAL_DATA = 1 << 12
    DO_READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    WRITEBACK_CACHE = 1 << 16
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    CACHE_SYMLINKS = 1 << 23
    HANDLE_KILLPRIV_V2 = 1 << 28


class Attr:
    """Which fields of SETATTR are set."""

    MODE, UID, GID, SIZE, ATIME, MTIME, FH, ATIME_NOW, MTIME_NOW = (1 << bit for bit in range(9))
    KILL_SUIDGID = 1 << 11


OPEN_KEEP_CACHE = 1 << 1
OPEN_KILL_SUIDGID = 1 << 0
WRITE_KILL_SUIDGID = 1 << 2
GETATTR_FH = 1 << 0

IN_HEADER = Struct("<IIQQIIIHH")
OUT_HEADER = Struct("<IiQ")
INIT_IN = Struct("<IIII")
INIT_OUT = Struct("<IIIIHHIIHHI28x")
ATTR = Struct("<QQQQQQIIIIIIIIII")
# nodeid, generation, two lifetimes in seconds, their nanoseconds; then ATTR
ENTRY = Struct("<QQQQII")
ATTR_OUT = Struct("<QII")
OPEN_IN = Struct("<II")
OPEN_OUT = Struct("<QIi")
CREATE_IN = Struct("<IIII")
MKNOD_IN = Struct("<IIII")
MKDIR_IN = Struct("<II")
RENAME_IN = Struct("<Q")
RENAME2_IN = Struct("<QII")
LINK_IN = Struct("<Q")
GETATTR_IN = Struct("<IIQ")
SETATTR_IN = Struct("<IIQQQQQQIIIIIIII")
READ_IN = Struct("<QQII")
WRITE_IN = Struct("<QQIIQII")
WRITE_OUT = Struct("<II")
FALLOCATE_IN = Struct("<QQQII")
RELEASE_IN = Struct("<Q")
FSYNC_IN = Struct("<QII")
STATFS_OUT = Struct("<QQQQQIIII24x")
XATTR_IN = Struct("<II")
XATTR_OUT = Struct("<II")
FORGET_IN = Struct("<Q")
BATCH_FORGET_IN = Struct("<II")
FORGET_ONE = Struct("<QQ")
INTERRUPT_IN = Struct("<Q")
DIRENT = Struct("<QQII")
