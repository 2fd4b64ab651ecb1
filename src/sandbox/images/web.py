"""HTTP for images, with the standard library, from servers that may be hostile.

The host that the user named may be anywhere, even on an intranet. Any other host that a server sends us to (a redirect,
a URL in a manifest, a token server) must be public: otherwise a server could make this machine send requests to its
neighbours. We connect to the very address that was checked. Only https is allowed, except on the loopback.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from sandbox.errors import ImageError
from sandbox.policy.addresses import is_blocked_private_or_link_local_ip, is_loopback_host, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT = 30.0  # seconds without a byte
REDIRECTS = 5
AGENT = "agent-sandbox"
# Worth another try: the server is busy or being replaced.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class ErrorStatus(ImageError):
    """The server answered with an error status. Trying again helps only if it is one of TRANSIENT."""

    def __init__(self, message: str, /, *, status: int, headers: Mapping[str, str], **values: object) -> None:
        super().__init__(message, status=status, **values)
        self.status = status
        self.headers = headers


class Web:
    """Requests to the server of `named`, the URL that the user gave, and to where that server sends us."""

    def __init__(self, named: str, certificates: Sequence[str] = ()) -> None:
        self._named = _place(named)
        context = ssl.create_default_context()
        for file in certificates:
            context.load_verify_locations(file)
        dial = self._dial

        class Plain(http.client.HTTPConnection):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                self._create_connection = dial

        class Secure(http.client.HTTPSConnection):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{**options, "context": context})
                self._create_connection = dial

        class Http(urllib.request.HTTPHandler):
            def http_open(self, request: Any) -> Any:
                return self.do_open(Plain, request)

        class Https(urllib.request.HTTPSHandler):
            def https_open(self, request: Any) -> Any:
                return self.do_open(Secure, request)

        # Not `build_opener`, which would read file: and ftp: URLs too. Proxies are the user's own.
        self._opener = urllib.request.OpenerDirector()
        self._proxies = urllib.request.getproxies()
        for handler in (
            urllib.request.ProxyHandler(self._proxies),
            Http(),
            Https(),
            _Redirects(self.allow),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            self._opener.add_handler(handler)

    def open(self, url: str, headers: Mapping[str, str], secret: Mapping[str, str] | None = None) -> Any:
        """The response to a GET. `secret` headers are sent only to this host, not to where it redirects. Raises Refused
        for an error status, ImageError for a URL that is not allowed, and OSError or `http.client.HTTPException`."""
        self.allow(url)
        request = urllib.request.Request(url, headers={"User-Agent": AGENT, **headers})
        for name, value in (secret or {}).items():
            request.add_unredirected_header(name, value)
        try:
            return self._opener.open(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as problem:
            with problem:
                raise ErrorStatus(
                    "{host} answered {status}",
                    host=ascii(urlsplit(url).hostname)[1:-1],
                    status=problem.code,
                    headers={name.lower(): value for name, value in problem.headers.items()},
                ) from None
        except urllib.error.URLError as problem:
            if isinstance(problem.reason, ImageError | OSError):
                raise problem.reason from None
            raise ImageError("{url} cannot be fetched: {problem}", url=_shown(url), problem=problem.reason) from None
        except (ValueError, http.client.InvalidURL):
            raise ImageError("{url} is not a URL that can be fetched", url=_shown(url)) from None

    def allow(self, url: str) -> None:
        """Raises ImageError for a URL that may not be requested."""
        try:
            place = _place(url)
        except ValueError:
            place = None
        if place is None:
            raise ImageError("{url} is not a URL that can be fetched", url=_shown(url))
        scheme, host, _ = place
        if scheme != "https" and not (scheme == "http" and is_loopback_host(host)):
            raise ImageError("{url} is not https", url=_shown(url))
        if place != self._named and (is_loopback_host(host) or _is_private(host)):
            raise ImageError("{host} is not a public address, and not the host that was named", host=_shown(host))

    def _dial(self, address: tuple[str, int], timeout: Any = TIMEOUT, source_address: Any = None) -> socket.socket:
        host, port = address
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if not self._may_be_private(host, port):
            for entry in found:
                if is_blocked_private_or_link_local_ip(str(entry[4][0])):
                    raise ImageError(
                        "{host} is not a public address, and not the host that was named", host=_shown(host)
                    )
        problem: OSError = OSError("no address")
        for family, kind, protocol, _, target in found:
            connection = socket.socket(family, kind, protocol)
            connection.settimeout(timeout)
            try:
                connection.connect(target)  # the address that was checked
                return connection
            except OSError as raised:
                connection.close()
                problem = raised
        raise problem

    def _may_be_private(self, host: str, port: int) -> bool:
        if (host.lower(), port) == self._named[1:]:
            return True
        proxies = (urlsplit(one) for one in self._proxies.values())
        return any((one.hostname or "").lower() == host.lower() for one in proxies)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = REDIRECTS

    def __init__(self, allow: Any) -> None:
        self._allow = allow

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        self._allow(urljoin(req.full_url, newurl))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _place(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(url)
    return parts.scheme, parts.hostname.lower(), parts.port or (443 if parts.scheme == "https" else 80)


def _is_private(host: str) -> bool:
    return parse_address(host) is not None and is_blocked_private_or_link_local_ip(host)


def _shown(url: object) -> str:
    return ascii(str(url))[1:-1][:200]
