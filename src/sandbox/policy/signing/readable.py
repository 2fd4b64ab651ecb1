"""Whether a person sees all of a text: nothing in it is invisible, looks empty, or stands for something else.

A text may have letters, numbers, punctuation, symbols, spaces, tabs, line ends, and marks on a letter. Everything else
(control, format, unassigned and private characters) is refused by its category. The list below refuses characters with
an accepted category that Unicode calls default-ignorable or that are drawn as nothing.
"""

from __future__ import annotations

import re
import unicodedata

# Unicode 15: every Default_Ignorable_Code_Point that is a letter or a mark, and the blank Braille pattern.
_BLANK = frozenset(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x16FE4, 0x1D159,
     *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000))
)  # fmt: skip
_SEEN = frozenset("LNPS")
_HASH = re.compile(r"(0x)?[0-9a-f]{64}", re.ASCII | re.IGNORECASE)


def readable(text: str) -> bool:
    """Whether a person can read all of `text`. An empty text, and one that is only a hash, is not readable."""
    if not text.strip() or _HASH.fullmatch(text.strip()):
        return False
    carries = False  # whether the character before can carry a mark
    for one in text:
        category = unicodedata.category(one)
        if ord(one) in _BLANK or not (category[0] in _SEEN or one in " \n\t" or (category[0] == "M" and carries)):
            return False
        carries = category[0] == "L" or (category[0] == "M" and carries)
    return True
