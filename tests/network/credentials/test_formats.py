"""Credential files: their strings are found, exchanged, and everything else stays."""

from __future__ import annotations

import configparser
import json
import netrc
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.credentials.formats import UnreadableCredentials, changed, leaves

NPMRC = """; my settings
registry=https://registry.npmjs.org/
//registry.npmjs.org/:_authToken=npm_secret
//npm.pkg.github.com/:_authToken = "ghp_quoted"
save-exact = true
"""
NETRC = """machine pypi.org login __token__ password pypi-AgEI
# a comment with machine in it
machine api.github.com
    login me
    password "with space"
default login anonymous password me@home
"""
HOSTS = """# gh
github.com:
    git_protocol: https
    oauth_token: gho_one
    users:
        me:
            oauth_token: gho_one
    user: me
"""
PIP = """[global]
index-url = https://me:pass@pypi.example.org/simple
extra-index-url =
    https://a:b@one.example.org/simple
    https://two.example.org/simple
timeout: 60
"""


def found(text: str, format: str) -> list[tuple[tuple[str, ...], str]]:
    return [(leaf.keys, leaf.value) for leaf in leaves(text, format)]


def test_an_npmrc() -> None:
    assert found(NPMRC, "ini") == [
        (("registry",), "https://registry.npmjs.org/"),
        (("//registry.npmjs.org/:_authToken",), "npm_secret"),
        (("//npm.pkg.github.com/:_authToken",), "ghp_quoted"),
        (("save-exact",), "true"),
    ]
    new = changed(NPMRC, "ini", {(("//npm.pkg.github.com/:_authToken",), 0): "PLACE"})
    assert new == NPMRC.replace("ghp_quoted", "PLACE")


def test_a_netrc_is_read_as_python_reads_it(tmp_path: Path) -> None:
    new = changed(NETRC, "netrc", {(("pypi.org", "password"), 0): "ONE", (("api.github.com", "password"), 0): "TWO"})
    file = tmp_path / "netrc"
    file.write_text(new)
    read = netrc.netrc(str(file))
    assert read.authenticators("pypi.org") == ("__token__", "", "ONE")
    assert read.authenticators("api.github.com") == ("me", "", "TWO")
    assert read.authenticators("elsewhere") == ("anonymous", "", "me@home")
    assert "# a comment" in new


def test_two_logins_of_one_machine_are_two() -> None:
    text = "machine a login one password first1 machine a login two password second2"
    passwords = [leaf for leaf in leaves(text, "netrc") if leaf.keys[1] == "password"]
    assert [(one.value, one.number) for one in passwords] == [("first1", 0), ("second2", 1)]
    assert changed(text, "netrc", {(("a", "password"), 1): "X"}).endswith("two password X")


def test_a_macro_is_one_string(tmp_path: Path) -> None:
    text = (
        "machine a login b password cccccccc\nmacdef init\nquote SITE secret\n\nmachine d login e password ffffffff\n"
    )
    assert (("macdef", "init"), "quote SITE secret") in found(text, "netrc")
    assert (("d", "password"), "ffffffff") in found(text, "netrc")


def test_yaml_keeps_its_comments_and_types() -> None:
    new = changed(HOSTS, "yaml", {(("github.com", "oauth_token"), 0): "123"})
    assert yaml.safe_load(new)["github.com"]["oauth_token"] == "123"
    assert yaml.safe_load(new)["github.com"]["users"]["me"]["oauth_token"] == "gho_one"
    assert new.startswith("# gh\n")


def test_pip_settings_continue_over_several_lines() -> None:
    assert (("global", "extra-index-url"), "https://a:b@one.example.org/simple") in found(PIP, "ini")
    new = changed(PIP, "ini", {(("global", "extra-index-url"), 0): "https://a:PLACE@one.example.org/simple"})
    parser = configparser.RawConfigParser()
    parser.read_string(new)
    assert parser["global"]["extra-index-url"].split() == [
        "https://a:PLACE@one.example.org/simple",
        "https://two.example.org/simple",
    ]


def test_toml_and_env() -> None:
    new = changed("[a]\n# note\nkey = 'old-value'\nn = 1\n", "toml", {(("a", "key"), 0): "new"})
    assert tomllib.loads(new) == {"a": {"key": "new", "n": 1}}
    assert "# note" in new
    text = "# x\nexport TOKEN='abc'\nOTHER=def\n"
    assert found(text, "env") == [(("TOKEN",), "abc"), (("OTHER",), "def")]
    assert changed(text, "env", {(("TOKEN",), 0): "P"}) == "# x\nexport TOKEN='P'\nOTHER=def\n"


def test_json_gets_fields_it_did_not_have_and_keeps_the_rest() -> None:
    text = '{\n  "a": {"n": 1.5, "é": "ü"},\n  "z": null\n}\n'
    new = changed(text, "json", {(("a", "b", "c"), 0): "T", (("a", "at"), 0): 5})
    assert json.loads(new) == {"a": {"n": 1.5, "é": "ü", "b": {"c": "T"}, "at": 5}, "z": None}
    assert new.endswith("}\n")
    assert json.loads(changed("", "json", {(("a",), 0): "T"})) == {"a": "T"}


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("{", "json"),
        ("[1]", "json"),
        ("a: [", "yaml"),
        ("a: |\n  x\n", "yaml"),
        ("machine a words", "netrc"),
        ("=", "toml"),
    ],
)
def test_what_cannot_be_read_says_so_and_not_what_is_in_it(text: str, format: str) -> None:
    with pytest.raises(UnreadableCredentials) as caught:
        leaves(text, format)
    assert str(caught.value) == f"not {format}"


@given(st.text(max_size=300), st.sampled_from(["json", "yaml", "toml", "ini", "netrc", "env"]))
def test_any_text_is_read_or_refused_and_its_strings_can_all_be_exchanged(text: str, format: str) -> None:
    try:
        here = leaves(text, format)
    except UnreadableCredentials:
        return
    new = {(leaf.keys, leaf.number): "PLACEHOLDER" for leaf in here}
    try:
        done = changed(text, format, new)
    except UnreadableCredentials:
        return
    assert all(leaf.value == "PLACEHOLDER" for leaf in leaves(done, format))


VALUES = st.text("abcXYZ019-_.", min_size=8, max_size=30)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), VALUES, max_size=5))
def test_a_file_of_simple_settings_can_be_written_in_every_format(data: dict[str, str]) -> None:
    texts = {
        "json": json.dumps(data),
        "yaml": yaml.safe_dump(data),
        "toml": "".join(f"{key} = {json.dumps(value)}\n" for key, value in data.items()),
        "ini": "".join(f"{key} = {value}\n" for key, value in data.items()),
        "env": "".join(f"{key}={value}\n" for key, value in data.items()),
        "netrc": "".join(f"machine {key} login me password {value}\n" for key, value in data.items()),
    }
    for format, text in texts.items():
        strings = [leaf.value for leaf in leaves(text, format) if leaf.keys[-1] != "login"]
        assert sorted(strings) == sorted(data.values())
