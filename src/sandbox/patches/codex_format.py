"""`*** Begin Patch`, the form that Codex and models trained for it write."""

from __future__ import annotations

from sandbox.errors import InvalidArgument
from sandbox.patches.patch import FilePatch, Hunk

BEGIN, END = "*** Begin Patch", "*** End Patch"
ADD, UPDATE, DELETE, MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
END_OF_FILE = "*** End of File"


def read(text: str) -> list[FilePatch]:
    """The files that the patch names. Raises InvalidArgument."""
    lines = text.strip().split("\n")
    if lines[0].strip() != BEGIN or lines[-1].strip() != END:
        raise InvalidArgument("a patch of this form begins with `{begin}` and ends with `{end}`", begin=BEGIN, end=END)
    patches, at = [], 1
    while at < len(lines) - 1:
        end = at + 1
        while end < len(lines) - 1 and not lines[end].startswith((ADD, UPDATE, DELETE)):
            end += 1
        patches.append(_file(lines[at], lines[at + 1 : end]))
        at = end
    return patches


def _file(head: str, body: list[str]) -> FilePatch:
    if head.startswith(DELETE):
        return FilePatch("delete", head.removeprefix(DELETE).strip())
    if head.startswith(ADD):
        if wrong := next((line for line in body if not line.startswith("+")), None):
            raise InvalidArgument("a line of a new file begins with `+`: {line!r}", line=wrong[:200])
        new = tuple(line[1:] for line in body)
        return FilePatch("add", head.removeprefix(ADD).strip(), (Hunk((), new),), ends_with_newline=True)
    if not head.startswith(UPDATE):
        raise InvalidArgument("not a line of a patch: {line!r}", line=head[:200])
    target = None
    if body and body[0].startswith(MOVE):
        target = body.pop(0).removeprefix(MOVE).strip()
    return FilePatch("update", head.removeprefix(UPDATE).strip(), tuple(_hunks(body)), target)


def _hunks(body: list[str]) -> list[Hunk]:
    hunks: list[Hunk] = []
    anchors: list[str] = []
    old: list[str] = []
    new: list[str] = []

    def close() -> None:
        if old or new:
            hunks.append(Hunk(tuple(old), tuple(new), anchors=tuple(anchors)))
            anchors.clear()
        old.clear()
        new.clear()

    for line in body:
        if line.startswith("@@"):
            close()
            if line[2:].strip():
                anchors.append(line[2:].strip())
        elif line.strip() == END_OF_FILE:
            continue
        elif line[:1] in ("", " "):
            old.append(line[1:])
            new.append(line[1:])
        elif line[0] == "-":
            old.append(line[1:])
        elif line[0] == "+":
            new.append(line[1:])
        else:
            raise InvalidArgument("not a line of a patch: {line!r}", line=line[:200])
    close()
    return hunks
