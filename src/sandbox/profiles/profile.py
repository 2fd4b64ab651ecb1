"""One profile, read from its file. Strict: an unknown key is an error with a suggestion, as in the config."""

from sandbox.config.model import PRESETS
from sandbox.config.section import Section, field
from sandbox.config.state_names import home_path, project_names, state_paths
from sandbox.errors import Message


def _home_path(value: object) -> str:
    if not isinstance(value, str) or home_path(value) == ".":
        raise ValueError(Message("{path!r} is not a path below the home", path=value))
    return home_path(value)


class Seed(Section):
    """A file of the kept home that the first run begins with. Never a value that looks like a secret."""

    source: str | None = field(None, "Your own file, if it has another name.", key="from", parse=_home_path)
    only: list[str] = field([], "Of a JSON, TOML or YAML file only these settings; dots lead into mappings.")
    when: dict[str, object] = field(
        {}, "By a variable of yours: settings that are written while it is set and your own file does not have them."
    )
    answers: dict[str, object] = field(
        {},
        "Settings that are written whatever yours are; `{project}` is the project's path, `{own}` a word that stays.",
        key="set",
    )


class Profile(Section):
    """A program, and what it needs in a sandbox."""

    description: str = field("", "What the program is, in a few words.")
    program: str = field("", "The program's name on your PATH.", example="claude")
    install: str = field("", "How to get it, for those who have not.", example="npm install -g @openai/codex")
    hosts: dict[str, str] = field({}, "The hosts it needs, and what for.", example={"api.example.com": "the model"})
    without: dict[str, str] = field(
        {}, "Hosts that it asks for and can do without, and what for: refused, and not worth a line at the end."
    )
    network: str = field("closed", "The network preset that its hosts are added to.", choices=PRESETS)
    keep: list[str] = field([], "Directories of the home that it keeps from run to run.", parse=state_paths)
    per_project: bool = field(True, "Each project has its own; otherwise what one project's agent wrote, all read.")
    project_state: list[str] = field(
        [],
        "Dot directories of the project that it writes settings to: kept for that project, outside of it.",
        parse=project_names,
    )
    acts_on: list[str] = field(
        [],
        "Files and directories of a project that name programs which it runs by itself: no tenant changes them.",
        example=[".tool/", "tool.json"],
    )
    seed: dict[str, Seed] = field({}, "Files of the kept home, by path, that the first run begins with.")
    credentials: dict[str, object] = field({}, "Its logins, as in the section `credentials` of the configuration.")
    environment: dict[str, str] = field({}, "Variables that are set.")
    pass_variables: list[str] = field([], "Variables of yours that it gets.", key="pass")
    flags: list[str] = field([], "Flags that it always gets, such as those that switch its own sandbox off.")
    trust_flags: list[str] = field([], "Flags that `--trust` adds: they skip its permission prompts.")
    trust_environment: dict[str, str] = field({}, "Variables that `--trust` sets for the same purpose.")
    own_options: list[str] = field(
        [], "Options of the program that go by the name of one of `sandbox run`: after its name they are the program's."
    )
    instructions: str | None = field(
        None, "The file of the home that it reads instructions from; it is told there where it is.", parse=_home_path
    )
    tested: str = field("", "The version of the real program that the tests ran; empty: a stand-in.")
