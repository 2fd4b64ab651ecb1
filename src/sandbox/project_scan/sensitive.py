"""Files that often hold secrets, but whose names are not among the built-in `blocked_patterns`."""

from __future__ import annotations

import re

# Pattern as in gitignore -> what the file must contain to count; None: its name is enough.
PATTERNS: dict[str, re.Pattern[str] | None] = {
    "*.tfvars": None,
    "*.tfstate": None,
    "*.p12": None,
    "*.pfx": None,
    "*.jks": None,
    "*.keystore": None,
    "*.kdbx": None,
    ".netrc": None,
    ".pgpass": None,
    ".pypirc": None,
    ".htpasswd": None,
    ".vault-token": None,
    "kubeconfig": None,
    "id_rsa": None,
    "id_ed25519": None,
    "service-account*.json": re.compile(r'"private_key"'),
    ".npmrc": re.compile(r"_(?:authToken|auth|password)\s*="),
    ".yarnrc.yml": re.compile(r"npmAuth(?:Token|Ident)"),
    ".docker/config.json": re.compile(r'"auths"'),
}
