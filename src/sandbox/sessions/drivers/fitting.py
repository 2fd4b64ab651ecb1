"""What the Python drivers send has to fit into a message, of which the host takes 8 MiB. This text stands before theirs."""

import json

VALUE_MOST = 7500000  # bytes of all forms of a value
PLAIN_MOST = 300000  # bytes of the plain text of one that is longer
ERROR_MOST = 4000000  # bytes of an error's value
TRACE_MOST = 100000  # characters
PIECE = 500000  # characters of output


def cut(text, most):
    """As much of the text as is at most so many bytes in a message."""
    while (size := len(json.dumps(text)) - 2) > most:
        text = text[: most * len(text) // size]
    return text


def fitting(data):
    """A value's forms, of which those that are too long are left out or, the plain text, cut; and whether one was."""
    kept, room = {}, VALUE_MOST
    for form, value in data.items():
        size = len(json.dumps(value, default=str))
        if size <= room:
            room -= size
            kept[form] = value
        elif form == "text/plain":
            kept[form] = "%s … (%d characters)" % (cut(str(value), PLAIN_MOST), len(str(value)))
    return {"data": kept, "truncated": len(kept) < len(data) or kept.get("text/plain") != data.get("text/plain")}


def pieces(text):
    """Output in parts that fit."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
