"""JSON from inside: one reading, or none."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.signing import strict_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_what_is_written_is_read_again(value: object) -> None:
    assert strict_json.loads(strict_json.dumps(value)) == value


@given(st.text(alphabet='[]{}",:\\\\1a ', max_size=60))
def test_whatever_is_read_is_what_python_reads(text: str) -> None:
    try:
        found = strict_json.loads(text)
    except strict_json.NotJson:
        return
    assert found == json.loads(text)


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', "1.0", "1e3", "NaN", "[Infinity]", "9" * 81, "[" * 33, "-0"]
)
def test_what_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(strict_json.NotJson):
        strict_json.loads(text)


def test_brackets_in_text_are_no_nesting() -> None:
    assert strict_json.loads(json.dumps(["[" * 100, '"[\\' * 50])) == ["[" * 100, '"[\\' * 50]


def test_text_without_an_end_is_looked_at_once() -> None:
    """Each of its quotes was tried as the beginning of another text: a mebibyte took the better part of an hour."""
    with pytest.raises(strict_json.NotJson):
        strict_json.loads('["' + '\\"' * 2**19, longest=2**21)
    assert [len(found) for found in strict_json._NESTING.findall('"' + '\\"' * 50)] == [101]


def test_nesting_cannot_end_a_process_whose_recursion_limit_a_library_has_raised() -> None:
    """eth-abi's grammar raises it to 100000: the parser would overflow the stack before it complains."""
    code = (
        "import sys; sys.setrecursionlimit(10**7)\n"
        "from sandbox.signing import strict_json\n"
        "try: strict_json.loads('[' * 250000)\n"
        "except strict_json.NotJson: print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "refused\n")


def test_what_signing_imports_leaves_the_limit_of_nesting_alone() -> None:
    """eth-abi raises it: then the next hostile document ends the process, whoever parses it."""
    code = (
        "import sys; from sandbox.signing.backends.ethereum import library; library(); print(sys.getrecursionlimit())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1000\n"
