"""Secrets that a pattern finds in a text, as in srt's `credentials` (`extract`, `decode`): the text that tenants get
instead, and the secrets that the gate holds for its placeholders."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any

from sandbox.config.dialects.srt_credentials import python_pattern
from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError, Message
from sandbox.network.credentials.bounded_search import first_groups
from sandbox.network.credentials.token_shapes import jwt_claims, shaped
from sandbox.network.secrets.sources import unusable
from sandbox.network.secrets.stored_key import placeholder_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandbox.config.model import Config, Filesystem

_JWT = r"(eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)"
_MOST = 2**20  # bytes of a file
_SIGNATURE = "AaBb01" * 8  # the shape of a signature


class Masked:
    """A text of which some parts are placeholders. `found` is how many secrets were in it."""

    def __init__(self, label: str, text: str, entry: Mapping[str, Any], key: bytes) -> None:
        self._label, self._entry, self._key = label, entry, key
        self.secrets: dict[str, dict[str, Any]] = {}
        self._instead: dict[str, str] = {}  # by captured text; the text itself when it is not a secret
        spans = self._spans(text)
        self.found = sum(value != instead for value, instead in self._instead.items())
        pieces, at = [], 0
        for start, end in sorted(spans):  # with look-around, matches come in any order and may be nested
            pieces += [text[at:start], self._instead[text[start:end]]]
            at = max(at, end)
        self.text = "".join(pieces) + text[at:]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where secrets are."""
        pattern = self._entry.get("extract")
        if pattern is None and self._entry.get("decode") is None:
            whole = text.rstrip("\r\n")  # a file's last line break is not part of its token
            spans = [(0, len(whole))] if whole else []
        else:
            found = first_groups(python_pattern(pattern or _JWT), text)
            # In JavaScript, `.` does not match the end of a line that Windows wrote.
            spans = [(start, start + len(text[start:end].rstrip("\r"))) for start, end in found]
        for start, end in spans:
            self._take(text[start:end])
        return self._with_duplicates(text, spans) if self._entry.get("maskDuplicates") else spans

    def _with_duplicates(self, text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        values = [value for value, instead in self._instead.items() if value != instead]
        if not values:
            return spans
        elsewhere = text
        for start, end in spans:
            elsewhere = elsewhere[:start] + "\0" * (end - start) + elsewhere[end:]
        known = "|".join(re.escape(value) for value in sorted(values, key=len, reverse=True))
        return [*spans, *first_groups(f"({known})", elsewhere)]

    def _take(self, value: str) -> None:
        if value in self._instead:
            return
        name = f"{self._label}#{len(self._instead)}"
        claims = jwt_claims(value) if self._entry.get("decode") == "jwt" else None
        if self._entry.get("decode") == "jwt" and claims is None:
            self._instead[value] = value
        elif claims is not None and self._entry.get("maskClaims"):
            self._instead[value] = self._with_claims(name, value, claims)
        else:
            self._instead[value] = self._secret(name, value, shaped(value, self._key, name))

    def _with_claims(self, name: str, value: str, claims: dict[str, Any]) -> str:
        """The token with some of its claims masked: the placeholder for the whole token."""
        named = [one for one in self._entry["maskClaims"] if isinstance(claims.get(one), str)]
        if not named:
            return value
        for one in named:
            claims[one] = self._secret(f"{name}.{one}", claims[one], shaped(claims[one], self._key, f"{name}.{one}"))
        body = base64.urlsafe_b64encode(json.dumps(claims, separators=(",", ":")).encode()).decode().rstrip("=")
        fake = f"{value.partition('.')[0]}.{body}.{shaped(_SIGNATURE, self._key, f'{name}.signature')}"
        return self._secret(name, value, fake)

    def _secret(self, name: str, value: str, placeholder: str) -> str:
        if why := unusable(value):
            raise ConfigError("what is masked {why}", why=why)
        # As in srt, both are searched for placeholders.
        places = ["header", "body"]
        self.secrets[name] = {
            "value": value, "placeholder": placeholder, "hosts": list(self._entry["hosts"]), "in": places,
        }  # fmt: skip
        return placeholder


def put_in(config: Config, masks: Sequence[dict[str, Any]], tell: Callable[[str], None]) -> None:
    """Masks what the entries name: each has `file` or `variable`, `hosts`, `setting`, and srt's keys. `tell` is called
    with notices for the person. Raises ConfigError."""
    key = placeholder_key()
    secrets: dict[str, Any] = {}
    for entry in masks:
        try:
            secrets |= _file(config, entry, key, tell) if "file" in entry else _variable(config, entry, key, tell)
        except ConfigError as problem:
            raise ConfigError(problem.problem, path=entry["setting"]) from None
    if secrets:
        whole = config.network.whole()
        config.network = config.network.changed({"secrets": {**whole["secrets"], **secrets}})


def _variable(config: Config, entry: dict[str, Any], key: bytes, tell: Callable[[str], None]) -> dict[str, Any]:
    name = entry["variable"]
    value = os.environ.get(name)
    if value is None:  # there is nothing to protect now, but a later command may set it
        config.environment = config.environment.changed({"block": [*config.environment.block, name]})
        return {}
    masked = Masked(f"${name}", value, entry, key)
    if not masked.found:
        if _stays(entry, Message("{name}: nothing in it was found to mask", name=name), tell):
            return {}
        config.environment = config.environment.changed({"block": [*config.environment.block, name]})
        return {}
    config.environment = config.environment.changed({"set": {**config.environment.set, name: masked.text}})
    return masked.secrets


def _file(config: Config, entry: dict[str, Any], key: bytes, tell: Callable[[str], None]) -> dict[str, Any]:
    named = os.path.abspath(os.path.expanduser(entry["file"]))
    path = os.path.realpath(named)
    filesystem = config.filesystem
    try:
        text = _text(path)
        if path != named and _is_denied(path, filesystem):
            raise OSError("a link, perhaps a tenant's, to what nobody may read")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError):  # a directory, a pipe, or not text: none of it is shown
        config.filesystem = filesystem.changed({"deny_read": [*filesystem.deny_read, path]})
        return {}
    masked = Masked(path, text, entry, key)
    if not masked.found and _stays(entry, Message("{name}: nothing in it was found to mask", name=path), tell):
        return {}
    replaced = {path: masked.text} if masked.found else {}
    config.filesystem = filesystem.changed(
        {"deny_read": [*filesystem.deny_read, path], "replaced": {**filesystem.replaced, **replaced}}
    )
    return masked.secrets


def _text(path: str) -> str:
    """The content of a file. Raises OSError for anything but a file: a pipe that a tenant left would never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError("not a file")
        data = opened.read(_MOST + 1)
    if len(data) > _MOST:
        raise ConfigError("the file is larger than {most} bytes", most=_MOST)
    return data.decode()


def _is_denied(path: str, filesystem: Filesystem) -> bool:
    return any(is_beneath(path, os.path.realpath(os.path.expanduser(one))) for one in filesystem.deny_read)


def _stays(entry: dict[str, Any], why: str, tell: Callable[[str], None]) -> bool:
    """Whether a text in which nothing was found is shown as it is. Only if the settings say so explicitly: it was named
    because it holds a secret."""
    asked = entry.get("onExtractNoMatch")
    if asked == "error":
        raise ConfigError(why)
    tell(
        Message("{why}; it is shown as it is", why=why) if asked == "warn" else Message("{why}; it is hidden", why=why)
    )
    return asked == "warn"
