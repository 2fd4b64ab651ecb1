"""An entry of the record: its fields, as in UDS and Milady, and the values they may have."""

from __future__ import annotations

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Plain = str | int | float | bool | None

# The type of event, as in Milady …
TYPES = (
    "sandbox_mode_transition",
    "secret_token_replacement_outbound",
    "secret_sanitization_inbound",
    "privileged_capability_invocation",
    "policy_decision",
    "signing_request_submitted",
    "signing_request_rejected",
    "signing_request_approved",
    "plugin_fallback_attempt",
    "security_kill_switch",
    "sandbox_lifecycle",
    "fetch_proxy_error",
)
# … and its severity, lowest first.
SEVERITIES = ("info", "warn", "error", "critical")
RESULTS = ("allowed", "blocked")

# A hostile tenant chooses names, paths and hosts, which must not fill the disk.
LONGEST = 4096


def check(type: str, severity: str, result: str | None) -> None:
    """Raises SandboxError for an unknown type, severity or result."""
    if type not in TYPES:
        raise SandboxError(
            "unknown audit event type {type!r}; must be one of {types}", type=type, types=", ".join(TYPES)
        )
    if severity not in SEVERITIES:
        raise SandboxError(
            "unknown severity {severity!r}; must be one of {severities}",
            severity=severity,
            severities=", ".join(SEVERITIES),
        )
    if result is not None and result not in RESULTS:
        raise SandboxError(
            "invalid access result {result!r}; must be {results}", results=" or ".join(RESULTS), result=result
        )


def timestamp(seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds. (`datetime` would cost an import; this is arithmetic on `time.gmtime`.)"""
    import time

    moment = time.gmtime(seconds)
    milliseconds = int(seconds % 1 * 1000)
    return (
        f"{moment.tm_year:04}-{moment.tm_mon:02}-{moment.tm_mday:02}"
        f"T{moment.tm_hour:02}:{moment.tm_min:02}:{moment.tm_sec:02}.{milliseconds:03}Z"
    )


def text(value: object) -> str:
    """A string of bounded length as JSON. Lone surrogates (undecodable file names) are escaped like everything else."""
    whole = str(value)
    return quoted(whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}…")


def quoted(text: str) -> str:
    """A string as JSON in ASCII. What needs no escaping, which is nearly everything, needs no library either."""
    if str.isascii(text) and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    from _json import encode_basestring_ascii  # the C function behind json.dumps, without the rest of json

    return encode_basestring_ascii(text)


def number(value: float) -> str:
    """A number as JSON. JSON has neither NaN nor infinity; either would make the line invalid."""
    return repr(value) if value - value == 0 else text(value)


def plain(value: Plain) -> str:
    """One metadata value as JSON."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    return number(value) if isinstance(value, int | float) else text(value)


def line(fields: Mapping[str, object], metadata: Mapping[str, Plain] | None) -> str:
    """The entry as one JSON object, without its closing brace: the chain's own fields follow."""
    parts = [f'"{name}":{text(value)}' for name, value in fields.items() if value is not None]
    if metadata:
        inner = ",".join(f"{text(name)}:{plain(value)}" for name, value in metadata.items())
        parts.append(f'"metadata":{{{inner}}}')
    return "{" + ",".join(parts)
