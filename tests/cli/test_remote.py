"""The keys that leave a terminal, however a terminal hands them over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli.remote import LeaveKeys

KEYS = st.lists(st.sampled_from([b"a", b"\x10", b"\x11", b"\n", "é".encode()]), max_size=20)


@given(KEYS, st.integers(1, 4))
def test_everything_before_the_keys_goes_through_and_nothing_after(typed: list[bytes], size: int) -> None:
    whole = b"".join(typed)
    keys, passed = LeaveKeys(), b""
    for at in range(0, len(whole), size):
        passed += keys.sift(whole[at : at + size])
        if keys.pressed:
            break
    before, found, _ = whole.partition(b"\x10\x11")
    assert keys.pressed == bool(found)
    # A lone Ctrl-P at the end waits for the next key.
    assert passed == before or (not found and passed + b"\x10" == before)
