"""Where tenants see the host's directories: rules name paths of the host, mounts name paths inside."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Views:
    """Pairs of a host directory and the path at which tenants see it."""

    def __init__(self, pairs: Iterable[tuple[str, str]], hiding: Iterable[str] = ()) -> None:
        """`hiding`: paths inside at which something else is mounted, so that the host's files there are not seen."""
        self._pairs = list(dict.fromkeys(pairs))
        self._places = {*hiding, *(inside for _, inside in self._pairs)}

    @property
    def roots(self) -> list[str]:
        """The host's directories."""
        return list(dict.fromkeys(host for host, _ in self._pairs))

    def inside(self, path: str) -> list[str]:
        """The paths at which tenants see what is at `path` on the host."""
        found: dict[str, None] = {}
        for host, inside in self._pairs:
            if path == host or path.startswith(host.rstrip("/") + "/"):
                shown = inside.rstrip("/") + path[len(host.rstrip("/")) :] or "/"
                if self._narrowest(shown) == inside:
                    found[shown] = None
        return list(found)

    def _narrowest(self, path: str) -> str:
        while path not in self._places and path != "/":
            path = path.rpartition("/")[0] or "/"
        return path
