"""What of a credential file comes in, besides placeholders: nothing that may be a token, and all that programs need."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config.credential_entries import complete
from sandbox.config.model import Config
from sandbox.network.credentials.formats import changed
from sandbox.network.credentials.login import Login
from sandbox.network.credentials.logins import Logins
from sandbox.network.credentials.visible_strings import is_address, parted

PLACES = {"npm": ".npmrc", "pip": ".config/pip/pip.conf", "netrc": ".netrc", "github": ".config/gh/hosts.yml"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / ".sandbox"))
    return tmp_path


def login(home: Path, name: str, text: str) -> Login:
    file = home / PLACES[name]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    [found] = Logins(complete(Config.read({"credentials": {name: {}}}).credentials)).logins
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("npm", "; //r.example/:_authToken=SECRET0old\n# SECRET1\n  ;SECRET2\n//r.example/:_authToken=new-token-1\n"),
        ("npm", "email=me@example.org ; SECRET0 was it\n"),
        ("pip", "[global]\n# index-url = https://me:SECRET0@a.example/\nextra-index-url =\n    #SECRET1\n    x\n"),
        ("netrc", "# machine a.example password SECRET0\nmachine a.example login me # SECRET1\n password p-a-s-s-w\n"),
        ("github", "# SECRET0\ngithub.com: # SECRET1\n  # SECRET2\n  user: me\n# SECRET3"),
        ("npm", "//r.example/:_authToken=${X}SECRET0\n//s.example/:_authToken=${SECRET0\n"),
        ("netrc", "machine a.example login me password ${SECRET0\n"),
        ("npm", "registry=https://SECRET0@r.example/\n@a:registry=https://me:x@SECRET0@r.example/\n"),
        ("npm", "registry=https://r.example/SECRET0aB3xY7aB3xY7/npm/\n"),
        ("pip", "[global]\nextra-index-url = https://a:SECRET0@a.example/ https://b:SECRET1@b.example/\n"),
        ("pip", "[global]\nindex-url = https://a:pass@SECRET0@a.example/\n"),
        ("pip", "[global]\nindex-url = https://SECRET0@a.example/\n"),
        ("pip", "[global]\ntimeout = 60 ; SECRET0\n"),
        ("netrc", "machine a.example login 0123456789abcdefSECRET0aB3xY7aB3xY7 password x-oauth-basic\n"),
    ],
)
def test_no_part_of_a_file_brings_a_token_in(home: Path, name: str, text: str) -> None:
    inside = login(home, name, text).inside()
    assert inside is not None and "SECRET" not in inside


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("npm", "email=me@example.org\na line with SECRET0\n"),
        ("pip", "[global] SECRET0\nindex-url = https://a.example/\n"),
        ("github", "github.com:\n  oauth_token: !!binary SECRET00\n"),
        ("github", "github.com:\n  user: !secret SECRET00\n"),
    ],
)
def test_a_file_with_something_that_nobody_knows_does_not_come_in(home: Path, name: str, text: str) -> None:
    found = login(home, name, text)
    assert found.inside() is None and found.problem is not None and "SECRET" not in found.problem


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pip", "[global]\nindex-url = https://mirror.example/simple\ntrusted-host = mirror.example\n"),
        ("pip", "[global]\nextra-index-url = https://a.example/simple https://b.example:8443/team-2024-packages/\n"),
        ("npm", "registry=https://r.example/api/npm/team-2024-packages/\nalways-auth=true\nsave-exact\n"),
        ("npm", "//r.example/:_authToken=${NPM_TOKEN}\ninit.author.name=Somebody Else\n"),
    ],
)
def test_what_programs_need_comes_in_as_it_is(home: Path, name: str, text: str) -> None:
    assert login(home, name, text).inside() == text


def test_each_url_of_a_line_has_a_token_of_its_own_for_its_host(home: Path) -> None:
    text = "[global]\nextra-index-url = https://a:password-a@a.example/ https://token-of-b@b.example/simple\n"
    tokens = {one.value: [pattern.host for pattern in one.hosts.patterns] for one in login(home, "pip", text).tokens()}
    assert tokens == {b"password-a": ["a.example"], b"token-of-b": ["b.example"]}


def test_a_persons_own_file_keeps_its_comments() -> None:
    text = "# mine\n//r.example/:_authToken=old-token-1 ; work\n"
    new = changed(text, "ini", {(("//r.example/:_authToken",), 0): "new-token-2"})
    assert new == "# mine\n//r.example/:_authToken=new-token-2 ; work\n"


@pytest.mark.parametrize(
    ("format", "text", "left"),
    [
        ("toml", 'a = "x#y" # SECRET\n# SECRET\'s\n', 'a = "x#y" #\n#\n'),
        ("toml", 'b = """\n# kept\n""" # SECRET\n', 'b = """\n# kept\n""" #\n'),
        ("env", "# SECRET\nexport A=b\n", "#\nexport A=b\n"),
        ("yaml", "a: 'x # y' # SECRET\nb: [1, # SECRET\n 2]\nc: x#y\n", "a: 'x # y' #\nb: [1, #\n 2]\nc: x#y\n"),
    ],
)
def test_comments_stay_outside_in_every_format(format: str, text: str, left: str) -> None:
    assert changed(text, format, {}, comments=False) == left


@given(st.text(max_size=60), st.text(alphabet="abz019:@/%?#.$-", max_size=60))
def test_a_password_is_found_in_a_url_or_the_url_is_no_address(name: str, rest: str) -> None:
    value = f"https://{name}@{rest}"
    assert not is_address(value) or "/" in name or "?" in name or "#" in name
    found = parted(value)
    if found is not None:
        assert "@" not in found.host and found.token
