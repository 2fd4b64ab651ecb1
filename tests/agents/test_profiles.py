"""What every profile gives, with stand-in programs: any agent behaves so, whether a registry has it or not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from sandbox.profiles.find import load, names
from tests.agents.conftest import Desk

pytestmark = pytest.mark.walls

TELLS = """#!/bin/sh
echo "program: $(basename "$0")"
for word in "$@"; do echo "word: $word"; done
env | sed 's/^/env: /'
echo "root: $(ls -A ~ | tr '\\n' ' ')"
"""


def profile(desk: Desk, name: str, **data: object) -> None:
    """Writes a profile of the person's own."""
    place = desk.sandbox / "profiles"
    place.mkdir(exist_ok=True)
    (place / f"{name}.yaml").write_text(yaml.safe_dump({"program": name, **data}))


@pytest.mark.parametrize("name", [one for one in names() if one != "shell"])
def test_every_shipped_profile_starts_its_program_and_keeps_what_it_says(desk: Desk, name: str) -> None:
    one = load(name)
    places = " ".join(f"~/{path}" for path in one.keep)
    desk.installs(one.program, f'#!/bin/sh\nfor one in {places}; do echo kept > "$one/mark"; done\nenv\n')
    done = desk.run(name)
    assert done.returncode == 0, done.stderr
    again = desk.run("run", "--profile", name, "--", "sh", "-c", f"for one in {places}; do cat $one/mark; done")
    assert again.stdout.split() == ["kept"] * len(one.keep), again.stderr
    assert not [path for path in desk.home.iterdir() if path.name != ".local"], "the person's home was written to"
    if one.instructions is not None:
        assert "You run in a sandbox" in (desk.kept(name) / one.instructions).read_text()


def test_the_arguments_are_the_programs_and_its_flags_come_before_them(desk: Desk) -> None:
    desk.installs("helper", TELLS)
    profile(desk, "helper", flags=["--own-sandbox=off"], trust_flags=["--yes"], keep=[".agent"])
    plain = desk.run("helper", "fix it", "--model", "x")
    assert [line for line in plain.stdout.splitlines() if line.startswith("word: ")] == [
        "word: --own-sandbox=off",
        "word: fix it",
        "word: --model",
        "word: x",
    ]
    long = desk.run("run", "--profile", "helper", "--", "helper", "fix it", "--model", "x")
    assert [one for one in long.stdout.splitlines() if one.startswith("word")] == [
        one for one in plain.stdout.splitlines() if one.startswith("word")
    ]
    trusted = desk.run("helper", "--trust", "fix it")
    assert "word: --yes\nword: fix it" in trusted.stdout
    assert "what holds is the sandbox" in trusted.stderr
    assert "what holds" not in plain.stderr


def test_options_of_run_come_first_unless_the_program_has_one_of_that_name(desk: Desk) -> None:
    desk.installs("helper", TELLS)
    profile(desk, "helper", own_options=["--mode"])
    done = desk.run("helper", "--env", "A=1", "--mode", "fast", "--env", "B=2")
    assert "env: A=1" in done.stdout
    assert "word: --mode\nword: fast\nword: --env\nword: B=2" in done.stdout
    assert "env: B=2" not in done.stdout
    assert "word: --env" in desk.run("helper", "--", "--env", "C=3").stdout
    wrong = desk.run("helper", "--pids", "many")
    assert wrong.returncode == 125
    assert "--pids" in wrong.stderr


def test_a_missing_program_is_an_error_that_says_how_to_get_it(desk: Desk) -> None:
    done = desk.run("claude")
    assert done.returncode == 125
    assert "claude is not on your PATH; to install it: npm install -g @anthropic-ai/claude-code" in done.stderr
    near = desk.run("cladue")
    assert "did you mean `sandbox claude`" in near.stderr


def test_a_file_is_saved_by_renaming_onto_it_and_is_there_in_the_next_run(desk: Desk) -> None:
    profile(desk, "sh", keep=[".agent"])
    save = "echo {} > ~/.agent/state.new && mv ~/.agent/state.new ~/.agent/state && cat ~/.agent/state"
    for text in ("one", "two"):
        assert desk.run("sh", "-c", save.format(text)).stdout == f"{text}\n"
    assert (desk.kept("sh") / ".agent/state").read_text() == "two\n"
    assert not (desk.home / ".agent").exists()


def test_each_project_has_its_own_unless_the_profile_shares_it(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    profile(desk, "sh", keep=[".agent"])
    profile(desk, "dash", keep=[".agent"], per_project=False)
    for name in ("sh", "dash"):
        desk.run(name, "-c", "echo here > ~/.agent/mark")
    assert desk.run("sh", "-c", "cat ~/.agent/mark", cwd=other).returncode != 0
    assert desk.run("dash", "-c", "cat ~/.agent/mark", cwd=other).stdout == "here\n"


def test_another_directory_at_the_same_path_starts_afresh_with_a_notice(desk: Desk) -> None:
    profile(desk, "sh", keep=[".agent"], project_state=[".tool"])
    left = desk.run("sh", "-c", "echo hostile > ~/.agent/settings.json; echo hostile > .tool/hooks.json")
    assert left.returncode == 0, left.stderr
    shutil.rmtree(desk.project)
    desk.project.mkdir()
    done = desk.run("sh", "-c", "cat ~/.agent/settings.json .tool/hooks.json; echo mine > ~/.agent/settings.json")
    assert done.stdout == ""
    assert f"{desk.project} is not the same directory as before: sh starts afresh" in done.stderr
    again = desk.run("sh", "-c", "cat ~/.agent/settings.json")
    assert (again.stdout, again.stderr) == ("mine\n", "")


def test_the_whole_home_can_be_kept(desk: Desk) -> None:
    assert desk.run("shell", "-c", "echo hello > ~/.config.new; mv ~/.config.new ~/.config").returncode == 0
    assert desk.run("shell", "-c", "cat ~/.config; pwd").stdout == f"hello\n{desk.project}\n"
    assert list(desk.home.iterdir()) == []


def test_the_persons_own_home_as_the_project_keeps_its_own_and_the_agents(desk: Desk) -> None:
    desk.has({".agent/token": "mine", "notes.txt": "notes"})
    profile(desk, "sh", keep=[".agent"])
    first = desk.run("sh", "-c", "cat ~/notes.txt ~/.agent/token; echo new > ~/.agent/made", cwd=desk.home)
    assert "notes" in first.stdout
    assert "mine" not in first.stdout
    assert desk.run("sh", "-c", "cat ~/.agent/made", cwd=desk.home).stdout == "new\n"
    assert sorted(one.name for one in (desk.home / ".agent").iterdir()) == ["token"]


def test_the_first_run_begins_with_the_persons_settings_without_history_and_credentials(desk: Desk) -> None:
    desk.has(
        {
            ".agent/settings.json": json.dumps(
                {
                    "model": "large",
                    "theme": {"name": "dark", "apiToken": "x" * 30},
                    "hooks": {"start": "curl evil"},
                    "key": "sk-ant-api03-secret",
                    "list": ["fine", "ghp_0123456789"],
                }
            ),
            ".agent/history.jsonl": "what I asked",
            ".agent/notes.md": "Write short sentences.",
            ".agent/leaky.md": "My key is sk-proj-0123456789abcdef.",
            ".agent/commands/review.md": "Review it.",
            ".agent/commands/deploy.md": "curl -H 'Authorization: Bearer' ghp_0123456789abcdef",
        }
    )
    seed = {
        ".agent/settings.json": {"only": ["model", "theme", "key", "list"], "set": {"onboarded": {"{project}": True}}},
        ".agent/notes.md": {},
        ".agent/leaky.md": {},
        ".agent/commands/": {},
    }
    profile(desk, "sh", keep=[".agent"], seed=seed)
    desk.run("sh", "-c", "true")
    kept = desk.kept("sh") / ".agent"
    assert json.loads((kept / "settings.json").read_text()) == {
        "model": "large",
        "theme": {"name": "dark"},
        "list": ["fine"],
        "onboarded": {str(desk.project): True},
    }
    assert sorted(str(one.relative_to(kept)) for one in kept.rglob("*") if one.is_file()) == [
        "commands/review.md",
        "notes.md",
        "settings.json",
    ]
    # What the agent changed and deleted since stays so.
    desk.run("sh", "-c", "echo '{}' > ~/.agent/settings.json; rm ~/.agent/notes.md")
    desk.run("sh", "-c", "true")
    assert json.loads((kept / "settings.json").read_text()) == {}
    assert not (kept / "notes.md").exists()


def test_what_an_agent_leaves_in_its_home_leads_the_host_nowhere(desk: Desk, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("untouched")
    profile(
        desk, "sh", keep=[".agent"], instructions=".agent/deep/AGENTS.md", seed={".agent/one.json": {"set": {"a": 1}}}
    )
    for trap in (
        f"rm -rf ~/.agent/deep; ln -s {victim} ~/.agent/deep",
        f"rm -rf ~/.agent/deep; mkdir ~/.agent/deep; ln -s {victim}/file ~/.agent/deep/AGENTS.md",
        "rm -rf ~/.agent/deep; mkdir ~/.agent/deep; mkfifo ~/.agent/deep/AGENTS.md",
        "rm -rf ~/.agent/deep; mkdir -p ~/.agent/deep/AGENTS.md",
    ):
        desk.run("sh", "-c", trap)
        done = desk.run("sh", "-c", "true", timeout=60)
        assert done.returncode == 0, done.stderr
        assert (victim / "file").read_text() == "untouched"
        assert [one.name for one in victim.iterdir()] == ["file"]


def test_the_agent_learns_where_it_is_and_its_own_lines_stay(desk: Desk) -> None:
    profile(desk, "sh", keep=[".agent"], instructions=".agent/AGENTS.md", hosts={"api.example.com": "the model"})
    desk.run("sh", "-c", "echo 'I like tests.' >> ~/.agent/AGENTS.md")
    told = desk.run("sh", "--overlay", "--network", "registries", "-c", "cat ~/.agent/AGENTS.md").stdout
    assert f"the project is {desk.project}" in told
    assert "Your changes go to a separate layer" in told
    assert "api.example.com" in told
    assert "package registries" in told
    assert "Retrying" in told
    assert told.count("You run in a sandbox") == 1
    assert "I like tests." in told
    assert sorted(one.name for one in desk.project.iterdir()) == [".git", "README.md"]


def test_a_key_in_a_variable_is_a_placeholder_inside_the_same_in_every_run(desk: Desk) -> None:
    desk.env["EXAMPLE_API_KEY"] = "sk-thisIsTheRealKeyOfThePerson0123456789"
    entry = {"variables": {"EXAMPLE_API_KEY": {"hosts": ["api.example.com"], "placeholder": "sk-placeholder-{own}"}}}
    profile(desk, "sh", keep=[".agent"], hosts={"api.example.com": "x"}, credentials={"x": entry})
    seen = {desk.run("sh", "-c", "echo $EXAMPLE_API_KEY").stdout for _ in range(2)}
    assert len(seen) == 1
    assert seen.pop().startswith("sk-placeholder-")
    curl = 'curl -sS https://api.example.com/ -H "Authorization: Bearer $EXAMPLE_API_KEY"'
    assert desk.run("sh", "-c", curl).returncode == 0
    [request] = desk.world.sent("api.example.com")
    assert ("authorization", f"Bearer {desk.env['EXAMPLE_API_KEY']}") in [(n.lower(), v) for n, v in request["headers"]]
    del desk.env["EXAMPLE_API_KEY"]
    assert desk.run("sh", "-c", "echo [$EXAMPLE_API_KEY]").stdout == "[]\n"


def test_a_profiles_hosts_are_added_and_a_project_can_only_deny(desk: Desk) -> None:
    profile(desk, "sh", keep=[".agent"], hosts={"api.example.com": "the model"})
    (desk.project / ".sandbox").mkdir()
    settings = desk.project / ".sandbox/config.yaml"
    settings.write_text(
        "network: {allowed_hosts: []}\nstate: {name: other, keep: ['.']}\nfilesystem: {programs: [/etc/x]}"
    )
    ask = ["sh", "--allow-host", "other.example.com", "-c"]
    curl = "curl -sS -o /dev/null -w '%{{http_code}}' http://{}/ 2>&1 || true"
    for host in ("api.example.com", "other.example.com"):
        desk.run(*ask, curl.format(host))
    assert {"api.example.com", "other.example.com"} <= set(desk.world.hosts)
    why = json.loads(desk.run("why", "--profile", "sh", "--host", "api.example.com", "--json").stdout)
    assert (why["allowed"], why["origin"]) == (True, "profile (sh)")
    settings.write_text("network: {denied_hosts: [api.example.com]}")
    desk.world.hosts.clear()
    desk.run(*ask, curl.format("api.example.com"))
    assert desk.world.hosts == []


@pytest.mark.parametrize(
    ("preset", "host", "allowed"),
    [
        ("closed", "pypi.org", False),
        ("registries", "pypi.org", True),
        ("registries", "example.com", False),
        ("open", "example.com", True),
        ("open", "10.0.0.1", False),
    ],
)
def test_why_explains_the_network_preset(desk: Desk, preset: str, host: str, allowed: bool) -> None:
    desk.config["network"]["preset"] = preset
    desk.write()
    why = json.loads(desk.run("why", "--host", host, "--json").stdout)
    assert why["allowed"] is allowed
    if allowed:
        assert why["setting"] == "network.preset"
        assert preset in why["reason"]


def test_a_project_can_lower_the_preset_and_not_raise_it(desk: Desk) -> None:
    desk.config["network"]["preset"] = "registries"
    desk.write()
    (desk.project / ".sandbox").mkdir()
    for wanted, allowed in (("open", True), ("closed", False)):
        (desk.project / ".sandbox/config.yaml").write_text(f"network: {{preset: {wanted}}}")
        why = json.loads(desk.run("why", "--host", "pypi.org", "--json").stdout)
        assert why["allowed"] is allowed
        assert json.loads(desk.run("why", "--host", "example.com", "--json").stdout)["allowed"] is False


def test_our_variable_is_sandbox_id(desk: Desk) -> None:
    done = desk.run("run", "--", "sh", "-c", "echo $SANDBOX_ID [$SANDBOX]")
    assert done.stdout.startswith("vm-")
    assert done.stdout.endswith(" []\n")


def test_a_program_in_node_modules_finds_its_sibling_packages(desk: Desk) -> None:
    packages = desk.home / "tools/node_modules"
    for name, text in (
        ("@example/agent/bin/agent.js", "#!/usr/bin/env node\nrequire('@example/agent-linux');\n"),
        ("@example/agent-linux/index.js", "console.log('sibling');\n"),
    ):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
        (packages / name).chmod(0o755)
    (packages / ".bin").mkdir()
    (packages / ".bin/agent").symlink_to("../@example/agent/bin/agent.js")
    (desk.home / "private").write_text("private")
    desk.env["PATH"] = f"{packages}/.bin:{desk.env['PATH']}"
    assert desk.run("run", "--", "agent").stdout == "sibling\n"
    # By a link from a directory of links, as installers make them.
    (desk.home / ".local/bin").mkdir(parents=True)
    (desk.home / ".local/bin/agent").symlink_to(packages / "@example/agent/bin/agent.js")
    desk.env["PATH"] = f"{desk.home}/.local/bin:/usr/bin:/bin"
    done = desk.run("run", "--", "sh", "-c", "agent; ls ~ ~/tools")
    assert done.stdout.startswith("sibling\n")
    assert "private" not in done.stdout


def test_a_program_in_the_home_itself_does_not_show_the_home(desk: Desk) -> None:
    desk.has({"secret.txt": "private"})
    desk.installs("helper", "#!/bin/sh\necho ran; ls -A ~; cat ~/secret.txt\n", directory=".")
    profile(desk, "helper", keep=[".agent"])
    done = desk.run("helper")
    assert done.stdout.startswith("ran\n"), done.stderr
    assert "private" not in done.stdout
    assert "secret.txt" not in done.stdout


def test_a_link_to_a_program_in_the_home_itself_does_not_show_the_home(desk: Desk) -> None:
    desk.has({"secret.txt": "private", "script.sh": "#!/bin/sh\necho ran\n", ".local/bin/other": ""})
    (desk.home / "script.sh").chmod(0o755)
    (desk.home / ".local/bin/script").symlink_to(desk.home / "script.sh")
    desk.env["PATH"] = f"{desk.home}/.local/bin:{desk.env['PATH']}"
    done = desk.run("run", "--", "sh", "-c", "script; ls -A ~; cat ~/secret.txt")
    assert done.stdout.startswith("ran\n"), done.stderr
    assert "secret.txt" not in done.stdout
    assert "private" not in done.stdout


def test_an_agent_file_runs_with_a_profile(desk: Desk) -> None:
    desk.installs("helper", TELLS)
    profile(
        desk,
        "helper",
        keep=[".agent"],
        hosts={"api.example.com": "the model"},
        flags=["--own-sandbox=off"],
        instructions=".agent/AGENTS.md",
    )
    agents = desk.project / ".sandbox/agents"
    agents.mkdir(parents=True)
    (agents / "reviewer.md").write_text("---\nname: reviewer\ndescription: reads\nallowed-tools: [Read]\n---\nRead.\n")
    done = desk.run("agent", "run", "reviewer", "--profile", "helper", "--", "look")
    assert "word: --own-sandbox=off\nword: look" in done.stdout, done.stderr
    assert "env: SANDBOX_AGENT=reviewer" in done.stdout
    assert "It is read-only" in (desk.kept("helper") / ".agent/AGENTS.md").read_text()
    desk.config["agents"] = {"profile": "helper"}
    desk.write()
    assert "word: --own-sandbox=off" in desk.run("agent", "run", "reviewer").stdout


def test_without_isolation_a_profile_is_refused(desk: Desk) -> None:
    desk.installs("helper", TELLS)
    profile(desk, "helper", keep=[".agent"])
    done = desk.run("helper", "--mode", "off")
    assert done.returncode == 125
    assert "a profile needs isolation" in done.stderr


def test_profile_new_writes_a_template_that_works_and_forget_deletes_what_was_kept(desk: Desk) -> None:
    desk.installs("mine", TELLS)
    made = desk.run("profile", "new", "mine")
    assert made.returncode == 0, made.stderr
    assert "program: mine" in desk.run("mine").stdout
    assert desk.run("profile", "new", "mine").returncode == 125
    listed = json.loads(desk.run("profile", "list", "--json").stdout)
    assert {"name": "mine", "own": True}.items() <= next(one for one in listed if one["name"] == "mine").items()
    assert {one["name"] for one in listed} >= {"claude", "codex", "gemini", "opencode", "aider", "shell"}
    assert "api.example.com" in desk.run("profile", "show", "mine").stdout
    assert "null" not in desk.run("profile", "show", "claude").stdout
    assert (desk.sandbox / "state/mine").exists()
    assert desk.run("profile", "forget", "mine").returncode == 0
    assert not (desk.sandbox / "state/mine").exists()
    for bad in ("../x", "-x", "a/b"):
        assert desk.run("profile", "new", "--", bad).returncode == 125


def test_forget_gone_deletes_what_was_kept_for_deleted_projects_only(desk: Desk, tmp_path: Path) -> None:
    profile(desk, "sh", keep=[".agent"])
    deleted = tmp_path / "deleted"
    for project in (desk.project, deleted):
        project.mkdir(exist_ok=True)
        assert desk.run("sh", "-c", "echo mine > ~/.agent/kept", cwd=project).returncode == 0
    shutil.rmtree(deleted)
    assert desk.run("profile", "forget", "--gone", "sh").stdout.splitlines() == [str(deleted)]
    assert desk.run("sh", "-c", "cat ~/.agent/kept").stdout == "mine\n"
    assert desk.run("profile", "forget", "--gone", "sh").stdout == ""
    deleted.mkdir()
    assert desk.run("sh", "-c", "ls -A ~/.agent", cwd=deleted).stdout == ""


def test_a_mistake_in_a_profile_is_reported_with_its_line(desk: Desk) -> None:
    place = desk.sandbox / "profiles"
    place.mkdir()
    (place / "mine.yaml").write_text("program: sh\nhostes: {a.example.com: x}\n")
    done = desk.run("mine")
    assert done.returncode == 125
    assert "mine.yaml:2" in done.stderr
    assert "did you mean 'hosts'" in done.stderr


def test_the_owner_alone_can_look_into_what_is_kept(desk: Desk) -> None:
    profile(desk, "sh", keep=[".agent"])
    desk.run("sh", "-c", "cp /bin/sh ~/.agent/sh; chmod 4755 ~/.agent/sh")
    place = desk.sandbox / "state/sh"
    inner = [one for one in place.rglob("*") if one.is_dir()]
    assert all(one.stat().st_mode & 0o077 == 0 for one in (place.parent, place, *inner))
    assert os.access(place, os.X_OK)


@pytest.mark.vm
def test_a_profile_in_a_virtual_machine_keeps_its_home(desk: Desk) -> None:
    profile(desk, "sh", keep=[".agent"])
    first = desk.run("sh", "--engine", "qemu", "-c", "uname -r > ~/.agent/kernel && cat README.md")
    assert first.stdout == "hello\n", first.stderr
    again = desk.run("sh", "-c", "cat ~/.agent/kernel")
    assert again.stdout.strip() not in ("", os.uname().release)
