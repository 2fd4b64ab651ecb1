"""The policy script: Starlark, hermetic, bounded in time and steps. UDS's sample runs unchanged.

    def on_request(req):                 # return req (its headers may be changed) or None to refuse
    def on_response(resp, req):
    def is_host_allowed(host):           # or is_allowed(host)

`req` has the fields method, url, scheme, host, port, path, query, headers, body and size; `resp` has status, headers,
body and size. Starlark can change dicts in place, but no other fields: a script changes `headers` directly, and
anything else by returning `changed(req, path="/other")`. `secrets` holds `policy_secrets`.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import starlark

from sandbox.errors import ConfigError, Denied
from sandbox.network.http.headers import Headers
from sandbox.policy.decision import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.network.http.message import Request, Response

SECONDS = 1.0
STEPS = 20_000_000  # loop iterations; starlark calls back every thousand
DEPTH = 100
MAX_PRINTED = 8 * 1024

# Appended to the script, so that its line numbers do not change.
_EPILOGUE = """

def changed(message, **fields):
    return struct(**({name: getattr(message, name) for name in dir(message)} | fields))

def gate_call_request(fields):
    answer = on_request(struct(**fields))
    return None if answer == None else {name: getattr(answer, name) for name in fields}

def gate_call_response(fields, request):
    answer = on_response(struct(**fields), struct(**request))
    return None if answer == None else {name: getattr(answer, name) for name in fields}
"""
_EXTENSIONS = ("StructType", "Json", "Map", "Filter")


class Script:
    """A loaded script. Raises ConfigError when it cannot be loaded."""

    def __init__(self, source: str, secrets: Mapping[str, str], log: Callable[[str], None]) -> None:
        self._log = log
        self.reads_bodies = re.search(r"\.body\b|\.size\b|\bdir\(|\bgetattr\(", source) is not None
        defined = {name for name in _FUNCTIONS if re.search(rf"^(def\s+{name}\s*\(|{name}\s*=)", source, re.MULTILINE)}
        self._host_function = next((n for n in ("is_host_allowed", "is_allowed") if n in defined), None)
        self._defined = defined
        stubs = "".join(f"\ndef {name}(*args): return None\n" for name in _FUNCTIONS[:2] if name not in defined)
        module = starlark.Module()
        module["secrets"] = dict(secrets)
        module.add_callable("print", self._print)
        extensions = [getattr(starlark.LibraryExtension, name) for name in _EXTENSIONS]
        try:
            program = starlark.parse("policy_script", source + stubs + _EPILOGUE, starlark.Dialect.extended())
            starlark.eval_with(_bounds(), module, program, starlark.Globals.extended_by(extensions))
            self._module = module.freeze()
        except Exception as problem:  # noqa: BLE001 - parse errors, run-time errors, our own bounds
            raise ConfigError("cannot be loaded: {problem}", problem=problem, path="network.policy_script") from None

    def has(self, function: str) -> bool:
        """Whether the script defines `function`."""
        return function in self._defined

    def host_allowed(self, host: str) -> Decision | None:
        """Whether the script allows `host`; None when it defines no such function. An error refuses."""
        if self._host_function is None:
            return None
        rule = f"network.policy_script: {self._host_function}"
        try:
            allowed = self._call(self._host_function, host) is True
        except Denied as problem:
            return Decision(False, rule, problem.reason)
        return Decision(
            allowed,
            rule,
            "the policy script allows {host}" if allowed else "the policy script does not allow {host}",
            host=host,
        )

    def on_request(self, request: Request) -> Request | None:
        """Runs the script's function on `request`. Called in a worker thread, as hooks are."""
        before = _request_fields(request, self.reads_bodies)
        after = self._call("gate_call_request", before)
        if after is None:
            return None
        for name in ("method", "scheme", "host", "port", "path", "query"):
            if after[name] != before[name]:
                setattr(request, name, after[name])
        if after["url"] != before["url"]:
            request.url = after["url"]
        _apply(request, before, after)
        return request

    def on_response(self, response: Response, request: Request) -> Response | None:
        """The same for a response."""
        before = _response_fields(response, self.reads_bodies)
        after = self._call("gate_call_response", before, _request_fields(request, False))
        if after is None:
            return None
        response.status = int(after["status"])
        _apply(response, before, after)
        return response

    def _call(self, function: str, *arguments: object) -> Any:
        try:
            return self._module.call_with(_bounds(), function, *arguments).value
        except Exception as problem:  # noqa: BLE001 - whatever goes wrong in a script refuses
            raise Denied(
                "network.policy_script", "the policy script failed: {problem}", problem=_short(problem)
            ) from None
        except BaseException as problem:
            if type(problem).__name__ != "PanicException":  # the interpreter's own; not an Exception
                raise
            raise Denied("network.policy_script", "the policy script ran out of memory") from None

    def _print(self, *values: object) -> None:
        self._log(" ".join(str(value) for value in values)[:MAX_PRINTED])


_FUNCTIONS = ("on_request", "on_response", "is_host_allowed", "is_allowed")


def _bounds() -> starlark.EvalOptions:
    end, turns = time.monotonic() + SECONDS, 0

    def cancelled() -> bool:
        nonlocal turns
        turns += 1000
        return turns > STEPS or time.monotonic() > end

    return starlark.EvalOptions(check_cancelled=cancelled, max_callstack_size=DEPTH)


def _request_fields(request: Request, with_body: bool) -> dict[str, Any]:
    names = ("method", "url", "scheme", "host", "port", "path", "query")
    fields: dict[str, Any] = {name: getattr(request, name) for name in names}
    return fields | _common(request, with_body)


def _response_fields(response: Response, with_body: bool) -> dict[str, Any]:
    return {"status": response.status, "status_code": response.status} | _common(response, with_body)


def _common(message: Request | Response, with_body: bool) -> dict[str, Any]:
    body = message.body if with_body else b""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body.decode("latin-1")
    return {"headers": _shown(message.headers), "body": text, "size": len(body)}


def _shown(headers: Headers) -> dict[str, str]:
    """Headers as a dict: names in title case, several values of one name joined by commas."""
    shown: dict[str, str] = {}
    for name, value in headers.pairs:
        key, text = name.decode("latin-1").title(), value.decode("latin-1")
        shown[key] = f"{shown[key]}, {text}" if key in shown else text
    return shown


def _apply(message: Request | Response, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Applies the script's changes to `message`. Fields that it did not touch keep their order and number."""
    old, new = before["headers"], after["headers"]
    for name in old:
        if name not in new:
            message.headers.remove(name)
    for name, value in new.items():
        if old.get(name) != value:
            message.headers.set(name, value)
    if after["body"] != before["body"]:
        message.body = after["body"]


def _short(problem: Exception) -> str:
    lines = [line for line in str(problem).splitlines() if line.startswith("error:")]
    return (lines[0].removeprefix("error:").strip() if lines else type(problem).__name__)[:200]
