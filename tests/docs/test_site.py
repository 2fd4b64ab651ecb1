"""`make docs` builds a site in which every link leads somewhere, with everything that `import sandbox` offers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox
from tests.docs.blocks import PAGES, ROOT

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([\w.-]+))?\)")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


MARKDOWN = [*PAGES, *sorted((ROOT / "clients").glob("*/README.md")), *sorted(ROOT.glob("README.*.md"))]


@pytest.mark.parametrize("page", MARKDOWN, ids=[str(page.relative_to(ROOT)) for page in MARKDOWN])
def test_every_link_in_the_repository_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), target
        assert not anchor or there.suffix != ".md" or anchor in anchors(there), f"{target}#{anchor}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return place


def test_the_reference_has_every_exported_name(site: Path) -> None:
    page = (site / "reference" / "index.html").read_text(encoding="utf-8")
    described = {one.rpartition(".")[2] for one in re.findall(r'id="(sandbox\.[\w.]+)"', page)}
    aliases = {"list_vms", "get_vm", "kill_vm"}  # named on the page, and described under their other names
    assert set(sandbox.__all__) - aliases <= described
    assert {"exec", "spawn", "write_text", "update_network", "apply"} <= described


def test_the_site_asks_nobody_else_for_anything(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', text) == [], page
