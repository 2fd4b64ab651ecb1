"""From a profile's name to a configuration and a command line, with the kept home made ready."""

from __future__ import annotations

import os

from sandbox.config.layers import resolve
from sandbox.config.modes import without_walls
from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError, Message
from sandbox.profiles.find import file_of, load
from sandbox.profiles.layer import about_itself, command, find_program, layer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from sandbox.config.layers import Resolved
    from sandbox.config.model import Config
    from sandbox.profiles.profile import Profile


class Prepared:
    """The configuration and the command of one run with a profile; `notices` are lines for the person."""

    def __init__(self, name: str, profile: Profile, resolved: Resolved, command: list[str]) -> None:
        self.name = name
        self.profile = profile
        self.resolved = resolved
        self.command = command
        self.notices: list[Message] = []


def prepare(
    name: str,
    words: Sequence[str],
    flags: Mapping[str, Any],
    *,
    project: str,
    config_file: str | None = None,
    trust: bool = False,
) -> Prepared:
    """Everything for a run of `words` (or of the profile's program alone) with the profile `name`.

    Raises NotFound for an unknown profile, SandboxError when its program is not installed, and ConfigError.
    """
    profile = load(name)
    words = command(profile, words, trust=trust)
    # Another command may run with this profile even if its program is not installed.
    program = find_program(profile, os.environ.get("PATH", "")) if words[:1] == [profile.program] else None
    root = os.path.realpath(project)
    outside = program if program and not is_beneath(os.path.realpath(os.path.dirname(program)), root) else None
    if about_itself(words) and program is not None:
        profile.credentials = {}
    resolved = configured(name, profile, flags, project=project, config_file=config_file, program=outside, trust=trust)
    found = Prepared(name, profile, resolved, words)
    if trust:
        found.notices.append(trusting(profile, resolved.config))
    furnish(found)
    return found


def configured(
    name: str,
    profile: Profile,
    flags: Mapping[str, Any],
    *,
    project: str,
    config_file: str | None = None,
    program: str | None = None,
    trust: bool = False,
) -> Resolved:
    """The configuration with the profile between the person's file and the project's. Raises ConfigError."""
    from sandbox.config.layers import ProfileLayer
    from sandbox.state.paths import own_word

    data = layer(name, profile, program, trust=trust, own=own_word(name))
    asked = ProfileLayer(name, file_of(name), data, list(profile.hosts), list(profile.without))
    return resolve(flags, project=project, config_file=config_file, profile=asked)


def trusting(profile: Profile, config: Config) -> Message:
    """What `--trust` changes, and what still holds."""
    if not (profile.trust_flags or profile.trust_environment):
        return Message("--trust changes nothing here: {program} has no permission prompts", program=profile.program)
    return Message(
        "{program} will not ask before it acts; what holds is the sandbox: it changes only {project} and its own kept "
        "directories, reaches only the hosts that are allowed, and has placeholders instead of your keys",
        program=profile.program,
        project=config.filesystem.root,
    )


def furnish(prepared: Prepared) -> None:
    """Makes the kept home ready: the first run's files, and the text that tells the agent where it is."""
    profile, config = prepared.profile, prepared.resolved.config
    if without_walls(config):
        raise ConfigError("a profile needs isolation; without, run {program} itself", program=profile.program)
    if not config.state.keep:
        return
    from sandbox.state import paths

    project = os.path.realpath(config.filesystem.root)
    is_new = not os.path.exists(paths.directory(config.state, project))
    top = paths.make(config.state, project)
    if is_new and paths.had_before(config.state, project):
        prepared.notices.append(
            Message(
                "{project} is not the same directory as before: {name} starts afresh here, without what it kept for "
                "the earlier one",
                project=project,
                name=prepared.name,
            )
        )
    paths.kept(config.state, project)
    try:
        _seed(profile, prepared.name, top, project)
        _instruct(profile, top, config)
    except OSError as problem:
        prepared.notices.append(
            Message("cannot write to the kept home of {name}: {reason}", name=prepared.name, reason=problem.strerror)
        )


def _seed(profile: Profile, name: str, top: str, project: str) -> None:
    """Writes the first run's files into the kept home `top`, and those that are looked at each time."""
    seeded = f"{os.path.dirname(top)}/seeded"  # beside the home, where no tenant writes
    first = not os.path.exists(seeded)
    if profile.seed and (first or any(one.when for one in profile.seed.values())):
        from sandbox.profiles.seeding import seed
        from sandbox.state.paths import own_word

        seed(profile, top, {"{project}": project, "{own}": own_word(name)}, first=first)
        with open(seeded, "w", encoding="utf-8"):
            pass


def _instruct(profile: Profile, top: str, config: Config) -> None:
    """Writes the text that tells the agent where it is."""
    if profile.instructions is None:
        return
    from sandbox.profiles.instructions import placed, text_about
    from sandbox.state import writing

    before = writing.read(top, profile.instructions)
    after = placed((before or b"").decode(errors="replace"), text_about(config)).encode()
    if after != before:
        writing.write(top, profile.instructions, after)
