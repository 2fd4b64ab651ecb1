"""Whether a text is all there is to see: nothing in it is invisible, looks empty, or stands for something else.

Letters, numbers, punctuation and symbols, spaces and line ends between them, and marks on a letter. Everything else
(controls, formats, unassigned and private characters) is refused by its category; what Unicode calls
default-ignorable, or draws as nothing, in spite of such a category, by the list below.
"""

from __future__ import annotations

import re
import unicodedata

# Unicode 15: Default_Ignorable_Code_Point that is a letter or a mark; and the blank pattern of Braille.
_BLANK = frozenset(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x16FE4, 0x1D159,
     *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000))
)  # fmt: skip
_SEEN = frozenset("LNPS")
_HASH = re.compile(r"(0x)?[0-9a-f]{64}", re.ASCII | re.IGNORECASE)


def readable(text: str) -> bool:
    """False also for a text that says nothing: an empty one, or one that is only a hash."""
    if not text.strip() or _HASH.fullmatch(text.strip()):
        return False
    carries = False  # whether the character before can carry a mark
    for one in text:
        category = unicodedata.category(one)
        if ord(one) in _BLANK or not (category[0] in _SEEN or one in " \n\t" or (category[0] == "M" and carries)):
            return False
        carries = category[0] == "L" or (category[0] == "M" and carries)
    return True
