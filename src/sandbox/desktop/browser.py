"""A browser inside the walls: Chromium with its own profile, driven over a pipe.

Its traffic goes through the gate, like every program's, and it trusts the gate's certificate authority. It is started
on first use, and again after a crash. With `browser.image` it runs in a sandbox of its own (`browser_sandbox.py`).
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

from sandbox.desktop import programs
from sandbox.desktop.cdp import Cdp, CdpClient
from sandbox.desktop.methods import BrowserEndpoints
from sandbox.errors import Denied, SandboxClosed, SandboxError
from sandbox.events import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.desktop.endpoint import Endpoint
    from sandbox.desktop.vnc_port import VncPort
    from sandbox.sandbox import Sandbox

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_DEBIANS = "/usr/lib/chromium/chromium"  # run directly: Debian's wrapper script needs files in /etc
_PROFILE = f"{programs.DIRECTORY}/profile"
# It does nothing unasked: no first-run pages, no calls home, no desktop keyring. No QUIC: the gate does not carry it.
_FLAGS = (
    "--remote-debugging-pipe", f"--user-data-dir={_PROFILE}", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-breakpad", "--metrics-recording-only", "--password-store=basic", "--disable-quic", "--disable-gpu",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
    "--disable-search-engine-choice-screen", "--force-color-profile=srgb", "--window-position=0,0",
)  # fmt: skip
_TRUST = (
    'd="sql:$HOME/.pki/nssdb"; mkdir -p "$HOME/.pki/nssdb" && '
    '{ [ -e "$HOME/.pki/nssdb/cert9.db" ] || "$0" -d "$d" -N --empty-password; } && '
    '"$0" -d "$d" -A -t C,, -n sandbox-gate -i "$1"'
)


class Browser:
    """The browser of one sandbox. Thread-safe."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._of = ref(sandbox)
        self._lock = Lock()
        self._cdp: Cdp | None = None
        self._endpoint: Endpoint | None = None
        self._vnc: VncPort | None = None
        self._own: Sandbox | None = None  # the browser's own sandbox, where it has one
        self._closed = False
        self.id = os.urandom(16).hex()
        self.own_sandbox = False  # whether Chromium's own sandbox is on

    @property
    def _sandbox(self) -> Sandbox:
        sandbox = self._of()
        if sandbox is None or self._closed:
            raise SandboxClosed("the sandbox is closed")
        return sandbox

    # -- for programs that drive browsers

    def endpoints(self) -> BrowserEndpoints:
        """The addresses to drive it at; starts it, unless it is running. Raises SandboxError."""
        listening = self._listening()
        whole = listening.ws(f"/devtools/browser/{self.id}")
        return BrowserEndpoints(whole, listening.http(""), listening.address)

    def start(self) -> None:
        """Starts it, unless it is running. Raises SandboxError."""
        self._running()

    @property
    def runs_in(self) -> str | None:
        """The id of the sandbox that it runs in; None when it was not started or has ended."""
        sandbox = self._own or self._of()
        return None if sandbox is None or self._cdp is None or self._cdp.over else sandbox.id

    @property
    def own(self) -> Sandbox | None:
        """The browser's own sandbox (`browser.image`), while there is one."""
        return None if self._own is None or self._own._closed else self._own

    def program(self) -> str | None:
        """The path of Chromium, where it would run; None when there is none. Raises SandboxError."""
        with self._lock:
            return _chromium(self._inside(self._sandbox))[0]

    def close(self) -> None:
        """Ends it. Idempotent."""
        self._closed = True
        for part in (self._endpoint, self._vnc, self._cdp, self._own):
            if part is not None:
                part.close()

    def _listening(self) -> Endpoint:
        from sandbox.desktop.endpoint import Endpoint

        self._running()
        with self._lock:
            if self._endpoint is None:
                self._endpoint = Endpoint(self, self._sandbox.config.browser.cdp_port)
            return self._endpoint

    # -- for the endpoints

    def attach(self, tell: Callable[[str], object], gone: Callable[[], object], target: str | None = None) -> CdpClient:
        """A new client of the debugging protocol. Raises SandboxError."""
        return self._running().attach(tell, gone, target)

    def version(self) -> dict[str, Any]:
        """The browser's version, as it reports it. Raises SandboxError."""
        told = self._running().call("Browser.getVersion")
        names = {
            "product": "Browser",
            "protocolVersion": "Protocol-Version",
            "userAgent": "User-Agent",
            "jsVersion": "V8-Version",
        }
        described = {name: _text(told.get(key)) for key, name in names.items()}
        return described | {"WebKit-Version": f"537.36 ({_text(told.get('revision'))})"}  # chromedriver needs it

    def pages(self) -> list[dict[str, str]]:
        """The open pages, which choose their titles and addresses themselves. Raises SandboxError."""
        found = self._running().call("Target.getTargets").get("targetInfos")
        infos = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return [
            {
                "id": _text(one.get("targetId")),
                "type": "page",
                "title": _text(one.get("title")),
                "url": _text(one.get("url")),
            }
            for one in infos[:1000]
            if one.get("type") == "page"
        ]

    def open(self, url: str = "about:blank") -> str:
        """Opens a page, and returns its id. Raises SandboxError."""
        return _text(self._running().call("Target.createTarget", url=url).get("targetId"))

    # -- starting

    def _running(self) -> Cdp:
        sandbox = self._sandbox
        if not sandbox.config.browser.enabled:
            raise Denied("browser.enabled", "the configuration says that this sandbox has no browser")
        with self._lock:
            if self._cdp is None or self._cdp.over:
                again = self._cdp is not None
                self._show(sandbox)
                self._cdp = self._start(self._inside(sandbox))
                self._tell(sandbox, "restarted" if again else "started")
            return self._cdp

    def _inside(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox that Chromium runs in: this one, or the browser's own. Raises what `Sandbox` raises."""
        if not sandbox._plan.walls:
            raise SandboxError("without walls there is no browser of the sandbox's own: choose another mode")
        if sandbox.config.browser.image is None:
            return sandbox
        if self._own is None or self._own._closed:
            from sandbox.desktop.browser_sandbox import open_for

            self._own = open_for(sandbox)
            if self._closed:  # meanwhile: nobody else would end it
                self._own.close()
                raise SandboxClosed("the sandbox is closed")
        return self._own

    def _start(self, sandbox: Sandbox) -> Cdp:
        program, certutil = _chromium(sandbox)
        if program is None:
            raise SandboxError("there is no Chromium inside (Debian: chromium)")
        environment = {} if sandbox.config.browser.headless else sandbox.desktop.start()
        programs.make_directory(sandbox)
        self._trust(sandbox, certutil)
        # Where tenants cannot make user namespaces, Chromium's own sandbox cannot work; our walls are still around it.
        self.own_sandbox = sandbox.exec(["/bin/sh", "-c", "unshare -U true"], timeout=10).exit_code == 0
        flags = [*_FLAGS, *([] if self.own_sandbox else ["--no-sandbox", "--test-type"])]
        if sandbox.config.browser.headless:
            flags.append("--headless=new")
        width, _, height = sandbox.config.desktop.size.partition("x")
        flags.append(f"--window-size={width},{height}")
        # Chromium reads the protocol from descriptor 3 and writes it to 4.
        script = f'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>{programs.DIRECTORY}/browser.log'
        process = sandbox._service(["/bin/sh", "-c", script, "sh", program, *flags, "about:blank"], env=environment)
        cdp = Cdp(process, lambda: self._crashed(process))
        try:
            cdp.call("Browser.getVersion", patience=sandbox.config.browser.auto_start_timeout)
        except SandboxError:
            cdp.close()
            problem = programs.complaints(sandbox, "browser")
            raise SandboxError("the browser inside did not start: {problem}", problem=problem) from None
        return cdp

    def _show(self, sandbox: Sandbox) -> None:
        """Listens for VNC viewers, where that is configured. Raises SandboxError."""
        port = sandbox.config.browser.vnc_port
        if not port or self._vnc is not None or sandbox.config.browser.headless:
            return
        from sandbox.desktop.desktop import MOST_PIXELS
        from sandbox.desktop.vnc_port import VncPort

        self._vnc = VncPort(port, lambda: self._inside(self._sandbox).desktop._look(True), MOST_PIXELS)

    def _trust(self, sandbox: Sandbox, certutil: str | None) -> None:
        authority = sandbox._plan.environment.get("NODE_EXTRA_CA_CERTS")
        if certutil is not None and authority is not None:
            sandbox.exec(["/bin/sh", "-c", _TRUST, certutil, authority], timeout=30, max_output=2**12)

    def _crashed(self, process: object) -> None:
        sandbox = self._of()
        if sandbox is not None and not self._closed and not sandbox._closed:
            self._tell(sandbox, "ended")

    def _tell(self, sandbox: Sandbox, state: str) -> None:
        sandbox._events.emit(event("browser", state=state))
        where = {"in": self._own.id} if self._own is not None else None
        sandbox.record.write("sandbox_lifecycle", f"browser {state}", metadata=where)


def _chromium(sandbox: Sandbox) -> tuple[str | None, str | None]:
    """The paths of Chromium and of `certutil` in a sandbox."""
    found = programs.find(sandbox)
    named = next((found[name] for name in _NAMES if name in found), None)
    return _DEBIANS if sandbox.exists(_DEBIANS) else named, found.get("certutil")


def _text(value: object) -> str:
    return value[:4096] if isinstance(value, str) else ""
