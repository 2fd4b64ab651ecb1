"""The lines of a record after a given number, as the bytes that were written, to be sent to another machine.

And whether a record still has what was sent: one that was rolled back does not.
"""

from __future__ import annotations

import os

from sandbox.audit import chain
from sandbox.audit.reading import files, lines, stored_head
from sandbox.audit.record import CURRENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

LONGEST_LINE = 2**20


class Following:
    """A place in a record. `after` is the number of the last line that was returned."""

    def __init__(self, directory: str, after: int = 0) -> None:
        self._directory = directory
        self.after = after
        self._file: BinaryIO | None = None

    def lines(self, most: int = 2**20) -> bytes:
        """The next whole lines, of about `most` bytes together; b"" when there are none yet. Raises OSError.

        Half a line is not returned: its writer is about to finish it, or crashed.
        """
        found = self._next(most)
        if not found and self._over():
            self.close()
            found = self._next(most)
        return found

    def went_back(self) -> bool:
        """Whether the record seems to end before the last line that was returned; `still_has` makes sure."""
        head = stored_head(self._directory)
        return self.after > 0 and (head is None or head.number < self.after)

    def close(self) -> None:
        """Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next(self, most: int) -> bytes:
        if self._file is None:
            self._file = self._opened()
        if self._file is None:
            return b""
        kept: list[bytes] = []
        size = 0
        while size < most:
            place = self._file.tell()
            line = self._file.readline(LONGEST_LINE)
            if not line.endswith(b"\n"):
                self._file.seek(place)
                break
            number = _number(line)
            if number is not None and number <= self.after:
                continue
            # A line that does not belong to the record is passed on too: whoever verifies should see it.
            self.after = number if number is not None else self.after
            kept.append(line)
            size += len(line)
        return b"".join(kept)

    def _opened(self) -> BinaryIO | None:
        """The file that has the next line: the last one that does not begin after it."""
        chosen: BinaryIO | None = None
        for name in files(self._directory):
            try:
                file = open(name, "rb")  # noqa: SIM115 - it stays open
            except FileNotFoundError:
                continue  # it was just given its final name
            first = _number(file.readline(LONGEST_LINE))
            if chosen is not None and (first is None or first > self.after + 1):
                file.close()
                break
            file.seek(0)
            if chosen is not None:
                chosen.close()
            chosen = file
        return chosen

    def _over(self) -> bool:
        """Whether the next line is in another file."""
        if self._file is None:
            return False
        try:
            return os.stat(os.path.join(self._directory, CURRENT)).st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False


def still_has(directory: str, number: int, digest: str) -> bool:
    """Whether a record has the line of that number and hash; also if it goes on after it, without its old files."""
    head = stored_head(directory)
    if number == 0 or (head is not None and (head.number, head.digest) == (number, digest)):
        return True
    last = 0 if head is None else head.number
    for _, _, line in lines(directory):
        found = chain.opened(line)
        if found is not None and found[1] == number:
            return found[2] == digest
        last = last if found is None else max(last, found[1])
    return last > number


def _number(line: bytes) -> int | None:
    found = chain.opened(line.decode("ascii", "replace"))
    return None if found is None else found[1]
