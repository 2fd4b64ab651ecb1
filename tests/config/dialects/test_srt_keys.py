"""Every key of srt 0.0.83's schema is known: honoured, or refused by its own name. docs/srt.md has a row for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sandbox.config.dialects.srt import TABLE, translate
from sandbox.config.model import Config
from sandbox.errors import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "srt.md"
JWT = {"decode": "jwt", "maskClaims": ["sub"]}

# Each key of the schema with a value that switches it on.
KEYS: dict[str, Any] = {
    "network.allowedDomains": ["example.com"],
    "network.deniedDomains": ["evil.example.com"],
    "network.deniedDomainReasons": {"evil.example.com": "use example.com"},
    "network.strictAllowlist": True,
    "network.deniedResolvedAddresses": ["10.0.0.0/8", "fc00::/7"],
    "network.allowUnixSockets": ["/run/x.sock"],
    "network.allowAllUnixSockets": True,
    "network.allowLocalBinding": True,
    "network.allowMachLookup": ["com.apple.x"],
    "network.httpProxyPort": 3128,
    "network.socksProxyPort": 1080,
    "network.mitmProxy.socketPath": "/x",
    "network.mitmProxy.domains": ["example.com"],
    "network.filterRequest": "function",
    "network.allowPlaintextHeaderSet": True,
    "network.stripResponseHeaders": ["set-cookie"],
    "network.refuseOpaqueTunnels": True,
    "network.requireHostMatch": True,
    "network.ambiguousRequestTarget": "asSpelled",
    "network.tlsTerminate.caCertPath": "/c",
    "network.tlsTerminate.caKeyPath": "/k",
    "network.tlsTerminate.excludeDomains": ["example.com"],
    "network.tlsTerminate.extraCaCertPaths": ["/nowhere.pem"],
    "network.tlsTerminate.maxTunnels": 256,
    "network.tlsTerminate.handshakeTimeoutMs": 10000,
    "network.parentProxy.http": "http://proxy:8080",
    "network.parentProxy.https": "http://proxy:8080",
    "network.parentProxy.noProxy": "localhost",
    "filesystem.disabled": True,
    "filesystem.denyRead": ["~/.ssh"],
    "filesystem.allowRead": ["."],
    "filesystem.allowWrite": [{"path": "/srv/*.env", "literal": True}],
    "filesystem.denyWrite": [".env"],
    "filesystem.allowGitConfig": True,
    "credentials.files": [{"path": "~/.netrc", "mode": "deny"}],
    "credentials.envVars": [{"name": "TOKEN", "mode": "mask"}],
    "credentials.allowPlaintextInject": True,
    "credentials.awsPairs": [{"accessKeyIdVar": "A", "secretAccessKeyVar": "B"}],
    "credentials.sigv4": {"streaming": "deny"},
    "ignoreViolations": {"*": ["/usr/bin"]},
    "enableWeakerNestedSandbox": True,
    "allowNestedUserNamespaces": True,
    "enableWeakerNetworkIsolation": True,
    "allowAppleEvents": True,
    "ripgrep": {"command": "rg"},
    "mandatoryDenySearchDepth": 5,
    "allowPty": True,
    "seccomp": {"applyPath": "/x"},
    "bwrapPath": "/usr/bin/bwrap",
    "socatPath": "/usr/bin/socat",
    "javaAgentJarPath": "/x.jar",
    "windows": {"backend": "mxc"},
    "git.safeDirectories": ["/repo"],
}
REFUSED = {
    "network.filterRequest",
    "filesystem.disabled",
    "credentials.allowPlaintextInject",
    "credentials.awsPairs",
    "credentials.sigv4",
    "allowNestedUserNamespaces",
}
OURS = {"strict", "network.allowAllDomains"}


def settings(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_srt_is_honoured_or_refused_by_name(key: str) -> None:
    asked = settings(key, KEYS[key])
    if key.startswith("network.tlsTerminate.ca"):  # a pair
        asked = {"network": {"tlsTerminate": {"caCertPath": "/c", "caKeyPath": "/k"}}}
    if key.startswith("network.mitmProxy."):
        asked = {"network": {"mitmProxy": {"socketPath": "/x", "domains": ["example.com"]}}}
    if key in REFUSED:
        with pytest.raises(ConfigError) as raised:
            translate(asked)
        assert raised.value.path == key and "unknown" not in str(raised.value)
    else:
        Config.read(translate(asked).data)
    # Switched off, a key changes nothing.
    if isinstance(KEYS[key], bool):
        assert translate(settings(key, False)).data == translate({}).data or key == "filesystem.allowGitConfig"


def test_no_key_is_known_here_that_srt_does_not_have() -> None:
    assert set(TABLE) == set(KEYS) | OURS


@pytest.mark.parametrize(
    "entry",
    [
        {"extract": "no group"},
        {"extract": "(unclosed"},
        {"onExtractNoMatch": "ignore"},
        {"decode": "base64"},
        {"maskClaims": ["sub"]},
        {"decode": "jwt", "maskClaims": []},
        {"maskDuplicates": "yes"},
        {"injectHosts": []},
        {"injectHost": ["a.test"]},
    ],
)
def test_a_mistake_in_a_mask_is_an_error(entry: dict[str, Any]) -> None:
    for section, subject in (("files", "path"), ("envVars", "name")):
        with pytest.raises(ConfigError, match=rf"credentials\.{section}"):
            translate({"credentials": {section: [{subject: "X", "mode": "mask", **entry}]}})
        Config.read(translate({"credentials": {section: [{subject: "X", "mode": "mask", **JWT}]}}).data)


def test_the_page_has_a_row_for_every_key_that_says_what_becomes_of_it() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (same|stricter|refused|no effect) \|", PAGE.read_text(), re.MULTILINE))
    assert set(rows) == set(KEYS) | OURS
    assert {key for key, becomes in rows.items() if becomes == "refused"} == REFUSED
