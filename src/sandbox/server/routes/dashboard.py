"""The dashboard's files. Anybody may load them: they contain no data, and the page asks for a token first."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Any

from litestar import Request, Response, get

DIRECTORY = Path(__file__).resolve().parent.parent / "dashboard"
TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".svg": "image/svg+xml"}
FRAMED = ("terminal.html", "screen.html")
# Nothing from other sites, nothing inline, no frame around the page: even text from a sandbox that got past all
# escaping could load and run nothing.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{styles}; img-src 'self'{images}; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)


def _policy(name: str) -> str:
    """The policy of a page. Those that ours frames need more: xterm.js and noVNC write style elements and cursors."""
    terminal = name in FRAMED
    return _POLICY.format(
        styles=" 'unsafe-inline'" if terminal else "",
        images=" data:" if name == "screen.html" else "",  # parts of the screen, as JPEG
        ancestors="'self'" if terminal else "'none'",
    )


def _files() -> dict[str, Path]:
    """The files in the directory, by their URL path. Only these are served, whatever a request names."""
    found = (path for path in sorted(DIRECTORY.rglob("*")) if path.is_file())
    files = {f"/{path.relative_to(DIRECTORY).as_posix()}": path for path in found}
    return {"/": files["/index.html"], **files}


FILES = _files()


@get(list(FILES), opt={"public": True}, include_in_schema=False)
async def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """One file of the dashboard."""
    path = FILES[request.scope["path"]]
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    headers = {"content-security-policy": _policy(path.name)}
    if path.name in FRAMED:
        headers["x-frame-options"] = "SAMEORIGIN"
    return Response(path.read_bytes(), media_type=kind, headers=headers)


ROUTES = [page]
