"""The sections of docs/agents.md that are made from the profiles: `python -m tests.agents.page` writes them."""

from __future__ import annotations

from pathlib import Path

from sandbox.config.credential_entries import complete
from sandbox.config.model import Config
from sandbox.profiles.find import PACKAGED, load
from sandbox.profiles.profile import Profile

PAGE = Path(__file__).parents[2] / "docs/agents.md"
BEGIN, END = "<!-- made from the profiles: begin -->", "<!-- made from the profiles: end -->"
FIRST = ("claude", "codex", "gemini", "opencode", "aider")


def sections() -> str:
    """One section a profile, the best known first."""
    shipped = sorted(one.stem for one in Path(PACKAGED).glob("*.json"))
    order = [*FIRST, *(name for name in shipped if name not in FIRST)]
    return "\n".join(section(name, load(name)) for name in order)


def section(name: str, one: Profile) -> str:
    lines = [f"### {name}", "", f"{one.description[0].upper()}{one.description[1:]}. {_tested(one)}", ""]
    lines += [f"Install it from <{one.install}>.", ""] if one.install.startswith("https:") else [f"    {one.install}"]
    lines += [f"    sandbox {name}", ""]
    rows = [("may reach", _reach(one)), ("keeps", _keeps(one)), ("starts with", _begins(one)), ("login", _login(one))]
    rows += [("tries to reach, and does not need", _named(one.without))]
    rows += [("instructions in", f"`~/{one.instructions}`" if one.instructions else "")]
    rows += [("flags and variables it always gets", _switched(one)), ("`--trust` adds", _trust(one))]
    rows += [("options that go to the program", _code(one.own_options))]
    lines += ["| | |", "|---|---|", *(f"| {what} | {text} |" for what, text in rows if text), ""]
    return "\n".join(lines)


def _tested(one: Profile) -> str:
    if one.tested:
        return f"Tested with the real program, version {one.tested}."
    return "Tested with a stand-in."


def _code(words: list[str]) -> str:
    return ", ".join(f"`{one}`" for one in words)


def _reach(one: Profile) -> str:
    return _named(one.hosts) or "nothing"


def _named(hosts: dict[str, str]) -> str:
    return "; ".join(f"`{host}` ({why})" for host, why in hosts.items())


def _keeps(one: Profile) -> str:
    where = "separately for each project" if one.per_project else "the same for all projects"
    also = f"; what it writes to {_code([f'{name}/' for name in one.project_state])} in the project"
    kept = _code(["~" if path == "." else f"~/{path}" for path in one.keep])
    return f"{kept}; {where}{also if one.project_state else ''}"


def _begins(one: Profile) -> str:
    found = []
    for path, seed in one.seed.items():
        if seed.only:
            source = f"your `~/{seed.source}`" if seed.source else "yours"
            found.append(f"`~/{path}`: {_code(seed.only)}, copied from {source}")
        elif not seed.answers and not seed.when:
            found.append(f"`~/{path}`")
    return "; ".join(found)


def _login(one: Profile) -> str:
    entries = complete(Config.read({"credentials": one.credentials}).credentials)
    found = []
    for entry in entries.values():
        found += [f"`{entry.file}`"] if entry.file else []
        found += [f"`{name}`" for name in entry.variables]
    return ", ".join(found) and f"{', '.join(found)}: with placeholders for the tokens"


def _switched(one: Profile) -> str:
    home = {name: value for name, value in one.environment.items() if "~" not in value}
    return (
        _code([" ".join(one.flags)] if one.flags else [])
        + (", " if one.flags and home else "")
        + _code([f"{name}={value}" for name, value in home.items()])
    )


def _trust(one: Profile) -> str:
    words = [" ".join(one.trust_flags)] if one.trust_flags else []
    return _code([*words, *(f"{name}={value}" for name, value in one.trust_environment.items())])


def page(before: str) -> str:
    """The page with its made sections as they should be."""
    head, _, rest = before.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{sections()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
