"""The hosts that a project's lock files and settings name: where its packages really come from.

Only the fields that a package manager connects to: a lock file is full of other addresses (`funding`, home pages).
"""

from __future__ import annotations

import re

from sandbox.project_scan.reading import Project

MOST_HOSTS = 20
_URL = r"(?:git\+|sparse\+|registry\+)?(?:https|http|ssh)://(?:[^\s/@\"']{0,200}@)?([A-Za-z0-9.-]{1,253})"
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+")

# File -> the text before an address that packages are fetched from.
FIELDS = {
    "package-lock.json": r"\"resolved\": ?\"",
    "npm-shrinkwrap.json": r"\"resolved\": ?\"",
    "yarn.lock": r"^ +(?:resolved|resolution:) \"(?:[^\s\"@]{0,200}@)?",
    "pnpm-lock.yaml": r"(?:tarball|repo): ?",
    "uv.lock": r"(?:registry|url|git) = \"",
    "poetry.lock": r"^url = \"",
    "pdm.lock": r"(?:url|git) = \"",
    "Pipfile": r"url = \"",
    "Pipfile.lock": r"\"(?:url|git)\": ?\"",
    "requirements.txt": r"(?:^(?:-i|-f|--index-url|--extra-index-url|--find-links)[ =]|^-e |^| @ ?)",
    "Cargo.lock": r"source = \"",
    "Gemfile.lock": r"^  remote: ",
    ".npmrc": r"registry ?= ?",
    ".yarnrc.yml": r"npmRegistryServer: ?\"?",
}
# Cargo's name for crates.io; it does not connect there.
_NOT_ASKED = re.compile(r"registry\+https://github\.com/rust-lang/crates\.io-index")


def hosts_named(project: Project, directory: str, names: list[str]) -> set[str]:
    """The hosts that the files among `names`, in `directory`, fetch from. At most MOST_HOSTS of them."""
    found: set[str] = set()
    for name in FIELDS.keys() & set(names):
        text = _NOT_ASKED.sub("", project.text(f"{directory}/{name}"))
        for match in re.finditer(FIELDS[name] + _URL, text, re.MULTILINE):
            host = match[1].lower()
            if _HOST.fullmatch(host) and len(found) < MOST_HOSTS:
                found.add(host)
    return found
