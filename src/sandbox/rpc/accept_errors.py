"""Errors of `accept` after which it is worth trying again."""

from __future__ import annotations

import errno

TEMPORARY = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
