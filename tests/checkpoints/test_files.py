"""Pausing, saving and forking a sandbox whose engine saves files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import ConfigError, InvalidArgument, NotFound, Sandbox, SandboxError
from sandbox.checkpoints import store

pytestmark = pytest.mark.walls


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "shared").write_text("host")
    (made / "old").write_text("host")
    return made


@pytest.fixture
def sandbox(project: Path) -> Iterator[Sandbox]:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as made:
        yield made


@pytest.fixture
def saved(sandbox: Sandbox) -> str:
    sandbox.exec("echo changed > shared; rm old; echo mine > ~/note; chmod 000 shared", check=True)
    return sandbox.checkpoint("ready").name


def test_a_paused_sandbox_does_nothing_until_it_is_resumed(sandbox: Sandbox) -> None:
    with sandbox.spawn("while :; do echo tick; sleep 0.01; done") as clock:
        clock.read()
        sandbox.pause()
        sandbox.pause()
        with pytest.raises(SandboxError, match="is paused"):
            sandbox.exec("true")
        with pytest.raises(SandboxError, match="is paused"):
            sandbox.read_file("shared")
        sandbox.resume()
        sandbox.resume()
        assert sandbox.exec("echo on").stdout == "on\n"
        clock.read()


def test_a_process_that_was_stopped_before_stays_stopped(sandbox: Sandbox) -> None:
    with sandbox.spawn("sleep 100") as sleeping:
        state = f"cut -d' ' -f3 /proc/{sleeping.pid}/stat"
        sandbox.exec(f"kill -STOP {sleeping.pid}; until [ $({state}) = T ]; do :; done", check=True)
        sandbox.pause()
        sandbox.resume()
        assert sandbox.exec(state).stdout == "T\n"


def test_a_paused_sandbox_can_be_closed(project: Path) -> None:
    sandbox = Sandbox({"filesystem": {"root": str(project)}})
    sandbox.pause()
    sandbox.close()


def test_forks_have_the_files_and_share_none(sandbox: Sandbox, project: Path) -> None:
    sandbox.exec("echo changed > shared; rm old; echo mine > ~/note; echo tmp > /tmp/note", check=True)
    one, two = sandbox.fork(2)
    with one, two:
        for fork in (one, two):
            assert fork.exec("cat shared ~/note /tmp/note; ls").stdout == "changed\nmine\ntmp\nshared\n"
        one.exec("echo one > shared; echo one > ~/note; echo one > /tmp/note", check=True)
        assert two.exec("cat shared ~/note /tmp/note").stdout == "changed\nmine\ntmp\n"
        assert sandbox.exec("cat shared ~/note /tmp/note").stdout == "changed\nmine\ntmp\n"
    assert (project / "shared").read_text() == "host"


def test_a_fork_has_an_id_a_record_and_a_name_of_its_own(sandbox: Sandbox) -> None:
    with sandbox.fork()[0] as fork:
        assert fork.id != sandbox.id
        assert fork.record is not sandbox.record
        assert fork.exec("hostname").stdout.strip() == fork.exec("cat /etc/hostname").stdout.strip() != "sandbox"
        assert fork.exec("getent hosts $(hostname)").exit_code == 0


def test_a_fork_says_that_only_files_were_saved(sandbox: Sandbox) -> None:
    with sandbox.fork()[0] as fork:
        assert any("neither processes nor memory" in notice for notice in fork.notices)


def test_a_fork_of_a_writable_project_has_an_overlay(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        sandbox.exec("echo direct > shared", check=True)
        with sandbox.fork()[0] as fork:
            assert any("overlay of its own" in notice for notice in fork.notices)
            fork.exec("echo fork > shared", check=True)
            assert [one.path for one in fork.changes()] == ["shared"]
    assert (project / "shared").read_text() == "direct\n"


def test_a_conflict_with_the_host_is_still_one_in_a_fork(sandbox: Sandbox, project: Path) -> None:
    sandbox.exec("echo inside > shared", check=True)
    (project / "shared").write_text("edited on the host")
    with sandbox.fork()[0] as fork:
        assert [bool(one.conflict) for one in fork.changes()] == [True]


def test_a_checkpoint_outlives_its_sandbox(sandbox: Sandbox, saved: str) -> None:
    sandbox.close()
    with Sandbox.restore(saved) as restored:
        assert restored.exec("chmod u+r shared; cat shared ~/note; ls").stdout == "changed\nmine\nshared\n"


def test_what_is_saved_is_private(saved: str, tmp_path: Path) -> None:
    for parent in (tmp_path / "home/checkpoints", tmp_path / "home/checkpoints" / saved):
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("part", ["layer/shared", "places/3/note", "manifest.json"])
def test_a_damaged_checkpoint_is_refused(saved: str, tmp_path: Path, part: str) -> None:
    path = tmp_path / "home/checkpoints" / saved / part
    path.chmod(0o600)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"overlay", b"Overlay") if part == "manifest.json" else content[::-1])
    with pytest.raises(SandboxError, match="damaged"):
        Sandbox.restore(saved)


def test_a_checkpoint_that_others_can_write_is_refused(saved: str, tmp_path: Path) -> None:
    (tmp_path / "home/checkpoints" / saved).chmod(0o770)
    with pytest.raises(SandboxError, match="not yours alone"):
        Sandbox.restore(saved)


def test_another_directory_in_the_projects_place_is_refused(saved: str, project: Path) -> None:
    project.rename(project.with_name("moved"))
    project.mkdir()
    with pytest.raises(SandboxError, match="not the directory that the checkpoint"):
        Sandbox.restore(saved)


def test_a_checkpoint_holds_no_secret_and_asks_for_it_again(project: Path, tmp_path: Path) -> None:
    value, variable = "s3cr3t-value-of-a-test", "another-value-of-a-test"
    config = {
        "filesystem": {"root": str(project)},
        "environment": {"set": {"TOKEN": variable, "KEY": "${KEY}"}},
        "network": {"secrets": {"KEY": {"value": value, "hosts": ["api.example.org"]}}},
    }
    with Sandbox(config) as sandbox:
        placeholder = sandbox.exec("echo $KEY").stdout
        sandbox.checkpoint("ready")
    whole = b"".join(path.read_bytes() for path in (tmp_path / "home/checkpoints").rglob("*") if path.is_file())
    assert value.encode() not in whole
    assert variable.encode() not in whole
    with pytest.raises(ConfigError, match="give it again"):
        Sandbox.restore("ready")
    again = {"environment": config["environment"], "network": {"secrets": {"KEY": {"value": value}}}}
    with Sandbox.restore("ready", again) as restored:
        assert restored.exec("echo $KEY").stdout == placeholder


def test_checkpoints_are_listed_and_removed(saved: str) -> None:
    assert [(one.name, one.saves) for one in store.checkpoints()] == [(saved, "files")]
    with pytest.raises(SandboxError, match="already"):
        store.UnfinishedCheckpoint(saved)
    store.remove(saved)
    assert store.checkpoints() == []
    with pytest.raises(NotFound):
        Sandbox.restore(saved)


def test_half_a_checkpoint_does_not_count_and_is_pruned(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), store.UnfinishedCheckpoint("half") as made:
        raise RuntimeError
    assert not os.path.exists(made.path)
    left = tmp_path / "home/checkpoints/.new-999999999-abcd"
    left.mkdir()
    assert store.checkpoints() == []
    assert store.prune() == 1
    assert not left.exists()


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "a b", "x" * 300])
def test_a_name_is_a_plain_one(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(InvalidArgument):
        sandbox.checkpoint(name)


def test_there_are_not_too_many_of_them(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST", 1)
    sandbox.checkpoint("one")
    with pytest.raises(SandboxError, match="too many"):
        sandbox.checkpoint("two")


def test_directories_of_the_host_that_forks_would_share_are_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "lent").mkdir()
    filesystem = {"root": str(project), "allow_write": [str(tmp_path / "lent")]}
    with Sandbox({"filesystem": filesystem}) as sandbox:
        with pytest.raises(SandboxError, match="allow_write"):
            sandbox.fork()
        assert sandbox.exec("echo on").stdout == "on\n"


def test_an_engine_that_cannot_save_says_so(project: Path) -> None:
    with Sandbox({"mode": "off", "filesystem": {"root": str(project)}}) as sandbox:
        for call in (sandbox.pause, sandbox.fork, sandbox.checkpoint):
            with pytest.raises(SandboxError, match="can neither pause"):
                call()


def test_a_fork_of_a_published_port_has_another(project: Path) -> None:
    config = {"filesystem": {"root": str(project)}, "network": {"publish": ["127.0.0.1:0:80"]}}
    with Sandbox(config) as sandbox, sandbox.fork()[0] as fork:
        assert {**fork.ports[0], "port": 0} == {**sandbox.ports[0], "port": 0}
        assert fork.ports[0].port != sandbox.ports[0].port


def test_a_link_that_a_tenant_put_above_a_place_leads_a_checkpoint_nowhere(project: Path, tmp_path: Path) -> None:
    """A mount cannot be moved, but what is above it can: by its path the link in its place led to the host's files."""
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("private")
    mounts = {f"{project}/build/m": {"type": "memory"}}
    with Sandbox({"filesystem": {"root": str(project)}, "vfs": {"mounts": mounts}}) as sandbox:
        sandbox.exec(f"mkdir x; ln -s {private} x/m; mv build build2; ln -s {project}/x build", check=True)
        with pytest.raises(SandboxError, match="cannot be copied"):
            sandbox.checkpoint("stolen")
    assert not any("private" in one.read_text() for one in (tmp_path / "home").rglob("key"))


def test_two_names_of_one_file_in_the_home_and_in_tmp_come_back(sandbox: Sandbox) -> None:
    sandbox.exec(
        "echo mine > ~/one; ln ~/one ~/two; mkdir /tmp/d; echo its > /tmp/d/one; ln /tmp/d/one /tmp/two", check=True
    )
    name = sandbox.checkpoint("linked").name
    with Sandbox.restore(name) as restored:
        assert (
            restored.exec("cat ~/two /tmp/two; test ~/one -ef ~/two && test /tmp/d/one -ef /tmp/two").stdout
            == "mine\nits\n"
        )


def test_what_is_in_a_directory_that_its_owner_closed_comes_back_and_it_stays_closed(sandbox: Sandbox) -> None:
    close = "mkdir -p {0}/in && echo kept > {0}/in/note && chmod 000 {0}/in {0}"
    for place in ("closed", "~/closed"):
        sandbox.exec(close.format(place), check=True)
    sandbox.checkpoint("closed")
    for place in ("closed", "~/closed"):
        assert sandbox.exec(f"stat -c %a {place}").stdout == "0\n"
    with Sandbox.restore("closed") as restored:
        for place in ("closed", "~/closed"):
            assert restored.exec(f"stat -c %a {place}; chmod 700 {place}; stat -c %a {place}/in").stdout == "0\n0\n"
            assert restored.exec(f"chmod 700 {place}/in; cat {place}/in/note").stdout == "kept\n"
