"""A hook of mkdocs: the site also has the README as its first page, and pages that live beside what they describe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent

# Path in the site -> path in the repository.
ELSEWHERE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "guest-protocol.md": "guest/protocol.md",
    "benchmarks.md": "bench/results.md",
    "clients-typescript.md": "clients/typescript/README.md",
    "clients-go.md": "clients/go/README.md",
    "clients-vectors.md": "clients/vectors/README.md",
    "examples.md": "examples/README.md",
}
_IN_SITE = {there: here for here, there in ELSEWHERE.items()}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    for here, there in ELSEWHERE.items():
        files.append(File.generated(config, here, abs_src_path=str(ROOT / there)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links are written for somebody who reads the repository; the site has the same pages elsewhere."""
    source = page.file.src_uri
    base = (ROOT / ELSEWHERE.get(source, f"docs/{source}")).parent
    return _LINK.sub(lambda match: _moved(match[1], base, source), markdown)


def _moved(link: str, base: Path, source: str) -> str:
    target = (base / link).resolve()
    if not target.exists() or not target.is_relative_to(ROOT):
        return link  # mkdocs reports it
    inside = str(target.relative_to(ROOT))
    up = "../" * source.count("/")
    if inside in _IN_SITE:
        return up + _IN_SITE[inside]
    if inside.startswith("docs/"):
        return up + inside.removeprefix("docs/")
    return "#" if target.is_dir() or target.suffix != ".md" else link  # source files are not part of the site
