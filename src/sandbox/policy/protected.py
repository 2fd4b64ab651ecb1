"""Files that a tenant may never write, because programs on the host act on them: the tables, and their patterns."""

from __future__ import annotations

from sandbox.config.patterns import Patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Filesystem

# Programs on the host (git, shells, editors, agents, direnv, and this one) read these and run what they say. Writing
# them from inside would be a delayed escape. (srt also refuses those in the first two lines.)
PROTECTED = (
    ".gitconfig", ".gitmodules", ".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".ripgreprc",
    ".mcp.json", ".vscode/", ".idea/", ".claude/", ".git/hooks/", ".git/config",
    ".bash_login", ".bash_logout", ".zshenv", ".zlogin", ".envrc", ".git/config.worktree", ".git/modules/**/config",
    ".git/modules/**/hooks/", ".cursor/", ".sandbox/", ".uds/", ".srt-settings.json",
    # Files that other editors, debuggers and shells read when a project is opened or entered.
    ".zed/", ".helix/", ".fleet/", ".devcontainer/", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".lvimrc",
    ".dir-locals.el", ".dir-locals-2.el", ".gdbinit", ".lldbinit", ".pdbrc", ".Rprofile", ".irbrc", ".pryrc", ".rvmrc",
    ".ghci", ".iex.exs", ".octaverc", ".lazygit.yml", ".git/lazygit.yml",
    ".vim/", "*.code-workspace", ".hg/hgrc", ".sl/config", ".jj/repo/config.toml", ".devcontainer.json",
    # mise runs what these say when a directory is entered. It trusts them by path, whatever they contain.
    "mise.toml", "mise.*.toml", ".mise.toml", ".mise.*.toml", ".mise/",
    # These tell git where a repository's config and hooks are when they are elsewhere.
    ".git/commondir", ".git/modules/**/commondir", ".git/worktrees/*/commondir", ".git/worktrees/*/config.worktree",
)  # fmt: skip
# Those among them that a shell runs when it enters a directory.
ENTERED = frozenset((".envrc", "mise.toml", "mise.local.toml", ".mise.toml", ".mise.local.toml"))
# Other files that coding agents act on in a project: settings that name programs, hooks, plugins. Each profile lists
# them for its program (`acts_on`). Reading the profiles at every start would take too long, so
# `tests/profiles/test_acts_on.py` checks that this list agrees with them.
AGENTS = (
    ".aider.conf.yml", ".amp/", ".codex/", ".factory/", ".gemini/", ".github/hooks/", ".goose/", ".kiro/agents/",
    ".kiro/hooks/", ".kiro/settings/", ".opencode/", ".qwen/", "opencode.json*",
)  # fmt: skip
# The directories that these names begin with. `layout/paths.py` checks whether the project is, or lies in, one of them.
PROTECTED_TOPS = frozenset(name.partition("/")[0] for name in (*PROTECTED, *AGENTS) if "/" in name)
# The parts of `.claude` that Claude Code runs or obeys. With `show_host`, the rest may be written, as in srt.
CLAUDE = (
    ".claude/commands/", ".claude/agents/", ".claude/skills/", ".claude/hooks/", ".claude/plugins/",
    ".claude/settings.json", ".claude/settings.local.json",
)  # fmt: skip
# Names of branches and tags, not of files: a branch `fix-secret-scan` is a hash that git must be able to read.
GIT_NAMES = (".git/refs", ".git/logs")


# The modes of an empty file and an empty directory that we made to keep a name. The sticky bit, which means nothing for
# a file, marks it as ours.
RESERVED, RESERVED_DIRECTORY = 0o1644, 0o1000


_made: dict[tuple[bool, bool], Patterns] = {}


def protected_patterns(show_host: bool = False, git_config: bool = False) -> Patterns:
    """What may never be written, at any depth. Made once, because it never changes."""
    asked = show_host, git_config
    if asked not in _made:
        names = _protected(show_host, git_config)
        _made[asked] = Patterns([name if "/" not in name.rstrip("/") else f"**/{name}" for name in names])
    return _made[asked]


def _protected(show_host: bool, git_config: bool) -> list[str]:
    names = [name for name in PROTECTED if not (git_config and name == ".git/config")]
    if show_host:  # an agent keeps its own state in `.claude` in the home, and srt lets it
        return [name for name in names if name != ".claude/"] + list(CLAUDE)
    return [*names, *AGENTS]


def protected_names(filesystem: Filesystem) -> list[str]:
    """The names behind `protected_in`."""
    return _protected(filesystem.show_host, filesystem.allow_git_config)


def protected_in(filesystem: Filesystem) -> Patterns:
    """What may never be written in this sandbox, at any depth."""
    return protected_patterns(filesystem.show_host, filesystem.allow_git_config)


def git_name(relative: str) -> bool:
    """Whether the path is a branch or tag inside a repository's `.git`."""
    return any(f"/{top}/" in f"/{relative}" for top in GIT_NAMES)
