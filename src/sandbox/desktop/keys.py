"""The names of keys, as xdotool, browsers and computer-use tools write them, and their numbers in X (keysyms)."""

from __future__ import annotations

from sandbox.errors import InvalidArgument

SHIFT = 0xFFE1
_MODIFIERS = {
    "shift": SHIFT, "ctrl": 0xFFE3, "control": 0xFFE3, "alt": 0xFFE9, "option": 0xFFE9,
    "super": 0xFFEB, "meta": 0xFFEB, "win": 0xFFEB, "windows": 0xFFEB, "cmd": 0xFFEB, "command": 0xFFEB,
    "altgr": 0xFE03,
}  # fmt: skip
_NAMED = {
    "return": 0xFF0D, "enter": 0xFF0D, "tab": 0xFF09, "escape": 0xFF1B, "esc": 0xFF1B, "backspace": 0xFF08,
    "delete": 0xFFFF, "del": 0xFFFF, "insert": 0xFF63, "home": 0xFF50, "end": 0xFF57, "space": 0x20,
    "left": 0xFF51, "up": 0xFF52, "right": 0xFF53, "down": 0xFF54,
    "arrowleft": 0xFF51, "arrowup": 0xFF52, "arrowright": 0xFF53, "arrowdown": 0xFF54,
    "pageup": 0xFF55, "prior": 0xFF55, "pagedown": 0xFF56, "next": 0xFF56,
    "capslock": 0xFFE5, "numlock": 0xFF7F, "scrolllock": 0xFF14, "print": 0xFF61, "printscreen": 0xFF61,
    "pause": 0xFF13, "menu": 0xFF67, "contextmenu": 0xFF67, "plus": 0x2B, "minus": 0x2D, "kpenter": 0xFF8D,
    "comma": 0x2C, "period": 0x2E, "slash": 0x2F, "backslash": 0x5C, "semicolon": 0x3B, "apostrophe": 0x27,
    "equal": 0x3D, "grave": 0x60, "bracketleft": 0x5B, "bracketright": 0x5D,
    **{f"f{number}": 0xFFBD + number for number in range(1, 25)},
}  # fmt: skip
MOST_KEYS = 128  # characters in the argument of `keypress`


def keysym(character: str) -> int:
    """The keysym of a character. Raises InvalidArgument if no key can type it."""
    code = ord(character)
    if character in "\n\r":
        return _NAMED["return"]
    if character == "\t":
        return _NAMED["tab"]
    if 0x20 <= code < 0x7F or 0xA0 <= code <= 0xFF:
        return code
    if code < 0xA0 or 0xD800 <= code < 0xE000 or code in (0xFFFE, 0xFFFF):
        raise InvalidArgument("no key types the character U+{code:04X}", code=code)
    return 0x01000000 | code


def chords(keys: str) -> list[list[int]]:
    """The keys of `"ctrl+s"` or `"Down Down Return"`: a list of chords, each with the keys to press together.

    Raises InvalidArgument.
    """
    if not isinstance(keys, str) or not keys.strip() or len(keys) > MOST_KEYS:
        raise InvalidArgument("keys must be 1 to {most} characters, as in `ctrl+s`", most=MOST_KEYS)
    return [[_key(name) for name in _names(chord)] for chord in keys.split()]


def _names(chord: str) -> list[str]:
    """The parts of `a+b`; the last one may be a plus sign itself."""
    if chord == "+":
        return ["+"]
    names = chord.removesuffix("++").split("+") + (["+"] if chord.endswith("++") else [])
    if "" in names:
        raise InvalidArgument("{chord!r} is not a key; keys are written as in `ctrl+s`", chord=chord)
    return names


def _key(name: str) -> int:
    if len(name) == 1:
        return keysym(name)
    plain = name.lower().replace("_", "").replace("-", "")
    for known in (plain, plain.removesuffix("l"), plain.removesuffix("r")):  # Control_L, Alt_R
        if known in _MODIFIERS:
            return _MODIFIERS[known]
    if plain in _NAMED:
        return _NAMED[plain]
    raise InvalidArgument("there is no key {name!r}", name=name)
