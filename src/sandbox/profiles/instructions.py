"""What an agent reads about where it runs: a short text from the policy, in the file it reads instructions from.

The text is one block between two marks. Around it the agent's and the person's own lines stay as they are.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config

BEGIN, END = "<!-- sandbox: begin -->", "<!-- sandbox: end -->"
MOST_HOSTS = 40


def text_about(config: Config) -> str:
    """The text for this configuration. For the agent, so in English whatever the person's language is."""
    return "\n".join(
        (
            "# You run in a sandbox",
            "",
            *_files(config),
            *_network(config),
            *_secrets(),
            "- There is no sudo, no Docker, no ssh agent and no desktop here. Nothing that you start outlives the "
            "session.",
            '- A refusal is final: "Permission denied" on a file, "Blocked by the sandbox" or HTTP 403 from a host. It '
            "names its rule. Retrying, another tool or another address will not help. Say what you need, and why; only "
            "the owner can allow it.",
            "",
        )
    )


def _files(config: Config) -> list[str]:
    filesystem = config.filesystem
    how = "You may change it"
    if filesystem.read_only:
        how = "It is read-only"
    elif filesystem.overlay:
        how = "Your changes go to a separate layer, which the owner reviews and applies"
    lines = [f"- Files: the project is {filesystem.root}. {how}."]
    lines += [f"- You may also change {path}." for path in filesystem.allow_write]
    lines += [f"- You may also read {path}." for path in filesystem.allow_read]
    lines.append(
        "- Hidden: files that hold secrets, such as .env and *.pem. Read-only: what programs of the owner would run "
        "later, such as .git/hooks, .git/config and editor settings."
    )
    lines += [
        f"- What you write to {name}/ of the project is kept for your next run; it is not in the project itself."
        for name in config.state.project
    ]
    kept = ", ".join(f"~/{path}" if path != "." else "~" for path in config.state.keep)
    lines.append(
        "- The home directory is empty at the start and gone at the end" + (f", except {kept}." if kept else ".")
    )
    return lines


def _network(config: Config) -> list[str]:
    network = config.network
    if network.preset == "open":
        return ["- Network: every public host. Each connection is on record."]
    hosts = network.allowed_hosts
    named = ", ".join(hosts[:MOST_HOSTS]) + (f" and {len(hosts) - MOST_HOSTS} more" if len(hosts) > MOST_HOSTS else "")
    more = " the usual package registries and source hosts," if network.preset == "registries" else ""
    if not (named or more):
        return ["- Network: none."]
    lines = [f"- Network: only{more} {named or 'nothing else'}. Each connection is on record."]
    if network.preset == "closed":
        lines.append(
            "- Package registries are not among them: to install packages, ask the owner to start you with "
            "`--network registries`."
        )
    return lines


def _secrets() -> list[str]:
    return [
        "- Keys and tokens that you find in variables and credential files are placeholders. They work where they are "
        "meant to be used, because the sandbox puts the real ones in outside. Do not print, decode or replace them."
    ]


def placed(before: str, text: str) -> str:
    """`before` with the block in it: where it was, or at the end."""
    block = f"{BEGIN}\n{text}{END}\n"
    head, found, rest = before.partition(BEGIN)
    if found:
        _, closed, tail = rest.partition(f"{END}\n")
        return head + block + (tail if closed else "")
    return f"{before.rstrip()}\n\n{block}" if before.strip() else block
