"""Rules for single requests: `METHOD host/path`. `*` matches a part of one path segment, `**` any number of segments.

Paths are compared after decoding, so that `%61dmin` is `admin`. A path that servers could read differently (dot
segments, backslashes, control characters, a percent sign that begins no escape, an encoded slash that a denying rule
would match as a real one) never slips past a rule. Allowing rules are case-sensitive. Denying rules ignore case,
because some servers do.
"""

from __future__ import annotations

from sandbox.errors import ConfigError, Message
from sandbox.policy.hosts import HostPattern, HostSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_HEX = frozenset("0123456789abcdef")
_TOKEN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ-_")


class HttpRule:
    """`GET api.github.com/repos/**`, or `GET,HEAD …`, or `* …`."""

    __slots__ = ("text", "methods", "host", "segments", "_hosts")

    def __init__(self, text: str) -> None:
        self.text = text
        words = text.split()
        if len(words) != 2:
            raise ConfigError(
                "{text!r}: must be a method, a host and a path, as in 'GET api.github.com/repos/**'", text=text
            )
        self.methods = None if words[0] == "*" else frozenset(words[0].upper().split(","))
        if self.methods is not None and not all(one and _TOKEN.issuperset(one) for one in self.methods):
            raise ConfigError("{text!r}: {words!r} is not an HTTP method", text=text, words=words[0])
        host, slash, path = words[1].partition("/")
        self.host = HostPattern(host)
        self.segments = tuple(path.split("/")) if slash else ("**",)
        self._hosts = HostSet([host])
        for one in self.segments:
            if "**" in one and one != "**":
                raise ConfigError("{text!r}: '**' must stand alone between slashes", text=text)

    def means(self, host: str, port: int | None) -> bool:
        """Whether the rule applies to `host` (canonical) on `port`; None means on any port."""
        return any(port is None or one.port in (None, port) for one in self._hosts.matching(host))

    def covers(self, method: str, segments: Sequence[str]) -> bool:
        """Whether the rule matches a request with this method and these decoded path segments."""
        if self.methods is not None and method.upper() not in self.methods:
            return False
        return _like(self.segments, segments, "**", _segment_like)

    def denies(self, method: str, segments: Sequence[str]) -> bool:
        """The same, ignoring case, because servers may ignore it."""
        if self.methods is not None and method.upper() not in self.methods:
            return False
        folded = [one.casefold() for one in self.segments]
        return _like(folded, [one.casefold() for one in segments], "**", _segment_like)


class HttpRules:
    """All rules of a sandbox. A host with an allowing rule accepts only requests that such rules allow."""

    def __init__(self, allow: Iterable[str], deny: Iterable[str], path: str = "network.http") -> None:
        self.allow = _rules(allow, f"{path}.allow")
        self.deny = _rules(deny, f"{path}.deny")

    def about(self, host: str) -> bool:
        """Whether some rule needs connections to `host` to be intercepted."""
        return any(rule.means(host, None) for rule in (*self.allow, *self.deny))

    def allowing(self, host: str, port: int | None) -> list[HttpRule]:
        """The allowing rules for `host`."""
        return [rule for rule in self.allow if rule.means(host, port)]

    def denial(self, method: str, host: str, port: int, target: str) -> tuple[str, Message] | None:
        """`(rule, reason)` if the request is denied, otherwise None. `target` is its path with the query."""
        allowing = self.allowing(host, port)
        denying = [rule for rule in self.deny if rule.means(host, port)]
        if not allowing and not denying:
            return None
        try:
            as_sent, as_split, as_decoded = _readings(target)
        except ValueError as problem:
            return "network.http", Message("{problem}, so no rule can be applied to it", problem=Message(str(problem)))
        # Most servers treat `/admin/` as `/admin`.
        without_final_slash = as_decoded if as_decoded[-1] else as_decoded[:-1]
        for rule in denying:
            if any(rule.denies(method, one) for one in (as_sent, as_decoded, without_final_slash)):
                text = Message("{method} {host} {path} is denied", method=method, host=host, path=_shown(target))
                return f"network.http.deny: {rule.text}", text
        # Servers disagree about encoded slashes: a request must be allowed in both readings.
        read = (as_sent,) if as_split == as_sent else (as_sent, as_split)
        if allowing and not all(any(rule.covers(method, one) for rule in allowing) for one in read):
            rule_of = "network.http.allow"
            return rule_of, Message(
                "{method} {host} {path} matches no rule of {setting}",
                method=method,
                host=host,
                path=_shown(target),
                setting=rule_of,
            )
        return None


def _rules(entries: Iterable[str], path: str) -> list[HttpRule]:
    rules = []
    for at, text in enumerate(entries):
        try:
            rules.append(HttpRule(text))
        except ConfigError as problem:
            raise ConfigError(problem.problem, path=f"{path}[{at}]") from None
    return rules


def _shown(target: str) -> str:
    path = target.partition("?")[0]  # a query may contain a secret
    return ascii(path if len(path) <= 120 else path[:120] + "…")[1:-1]


def _readings(target: str) -> tuple[list[str], list[str], list[str]]:
    """The path's segments: split before decoding, split after, and as the most lenient servers read them.

    Raises ValueError for a path that can be read in yet another way."""
    if "#" in target:
        raise ValueError("the request's target contains '#'")
    path = target.partition("?")[0]
    if not path.startswith("/") and path != "*":
        raise ValueError("the request's target is not a path")
    _refuse_odd_escapes(path)
    as_sent = [_decoded(one) for one in path.removeprefix("/").split("/")]
    as_decoded = as_split = "/".join(as_sent).split("/")
    if any(one.partition(";")[0] in (".", "..") for one in as_decoded):
        raise ValueError("the path contains dot segments")
    if any(ord(letter) < 32 or letter in "\\\x7f" for one in as_decoded for letter in one):
        raise ValueError("the path contains a backslash or control character")
    if any(_decoded(one) != one for one in as_decoded):
        raise ValueError("the path is encoded twice")
    # Servers commonly treat `//` as `/`, and some (Tomcat) treat `admin;x=1` as `admin`. A rule must not depend on
    # which kind of server this is.
    plain = [one.partition(";")[0] for one in as_decoded]
    return as_sent, as_split, [one for at, one in enumerate(plain) if one or at == len(plain) - 1]


def _refuse_odd_escapes(path: str) -> None:
    """Raises ValueError for `%u002e` and `%c0%ae`, which some servers read as a dot and others not at all."""
    codes = [one[:2].lower() for one in path.split("%")[1:]]
    if not all(len(one) == 2 and _HEX.issuperset(one) for one in codes):
        raise ValueError("the path contains a percent sign that begins no escape")
    for code, following in zip(codes, [*codes[1:], ""], strict=False):
        if code in ("c0", "c1") or (code, following[:1]) in (("e0", "8"), ("e0", "9"), ("f0", "8")):
            raise ValueError("the path contains UTF-8 that is longer than it need be")


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    raw = bytearray()
    data = text.encode("utf-8", "surrogateescape")
    at = 0
    while at < len(data):
        code = data[at + 1 : at + 3]
        if data[at] == 0x25 and len(code) == 2 and code.isalnum():
            try:
                raw.append(int(code, 16))
                at += 3
                continue
            except ValueError:
                pass  # `%zz` is literal
        raw.append(data[at])
        at += 1
    return raw.decode("utf-8", "surrogateescape")


def _segment_like(pattern: str, segment: str) -> bool:
    return _like(pattern, segment, "*", lambda one, letter: one in (letter, "?"))


def _like(pattern: Sequence[str], text: Sequence[str], star: str, fits: Callable[[str, str], bool]) -> bool:
    """Wildcard matching that backtracks only to the last star, so a hostile path costs at most its length times the
    pattern's. A final `**` also matches no segment at all: `/repos/**` includes `/repos`."""
    p = t = 0
    back, mark = -1, 0
    while t < len(text):
        if p < len(pattern) and pattern[p] == star:
            back, mark = p, t
            p += 1
        elif p < len(pattern) and fits(pattern[p], text[t]):
            p, t = p + 1, t + 1
        elif back >= 0:
            mark += 1
            p, t = back + 1, mark
        else:
            return False
    return all(one == star for one in pattern[p:])
