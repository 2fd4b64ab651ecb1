"""What is there, what is not, and what cannot be changed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox import ConfigError, Sandbox
from sandbox.guest.binary import guest_binary

HOME = os.path.realpath(os.path.expanduser("~"))


def test_the_project_is_writable_at_its_own_path(sandbox: Sandbox, project: Path) -> None:
    sandbox.exec(f"echo changed > {project}/file").exit_code  # noqa: B018
    assert (project / "file").read_text() == "changed\n"
    assert (project / "file").stat().st_uid == os.getuid()


def test_a_read_only_project_cannot_be_changed(project: Path) -> None:
    (project / "file").write_text("as it was")
    with Sandbox({"filesystem": {"root": str(project), "read_only": True}}) as sandbox:
        assert "Read-only" in sandbox.exec("echo x > file").stderr
        assert sandbox.exec("rm -f file").exit_code != 0
        assert sandbox.exec("chmod 777 file").exit_code != 0
        assert sandbox.exec("mount -o remount,rw . 2>&1").exit_code != 0
    assert (project / "file").read_text() == "as it was"


def test_a_home_in_var_tmp_is_the_sandboxs_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        Path(home, "private").write_text("private")
        monkeypatch.setenv("HOME", home)
        with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
            assert sandbox.exec("cd ~ && pwd && ls && echo x > new && cat new").stdout == f"{home}\nx\n"
        assert not Path(home, "new").exists()


def test_programs_of_the_system_find_their_own_settings(sandbox: Sandbox) -> None:
    assert sandbox.exec(["cat", "/etc/os-release"]).stdout == Path("/etc/os-release").read_text()
    for settings in Path("/etc").glob("java-*"):  # /usr/lib/jvm/…/conf is a link to it
        assert sandbox.exec(["ls", str(settings)]).stdout.split() == sorted(os.listdir(settings))


@pytest.mark.parametrize("place", ["/usr", "/bin", "/etc", "/", "/usr/local", "/var", "/proc/sys/kernel"])
def test_the_system_cannot_be_changed(sandbox: Sandbox, place: str) -> None:
    assert sandbox.exec(f"touch {place}/planted").exit_code != 0
    assert not os.path.exists(f"{place}/planted")


def test_etc_is_synthetic(sandbox: Sandbox) -> None:
    for secret in ("shadow", "sudoers", "ssh", "fstab", "machine-id", "ssl/private", "pip.conf"):
        assert sandbox.exec(["ls", f"/etc/{secret}"]).exit_code != 0, secret
    passwd = sandbox.exec(["cat", "/etc/passwd"]).stdout.splitlines()
    assert [line.split(":")[2] for line in passwd] == [str(os.getuid() or 1000), "0", "65534"]
    assert sandbox.exec(["cat", "/etc/hosts"]).stdout.startswith("127.0.0.1 localhost")


def test_the_home_directory_is_empty_and_its_own(sandbox: Sandbox) -> None:
    marker = Path(HOME) / ".sandbox-test-marker"
    marker.write_text("of the host")
    try:
        assert sandbox.exec(["cat", str(marker)]).exit_code != 0
        assert sandbox.exec(f"echo $HOME; echo x > {HOME}/.bashrc && echo written").stdout == f"{HOME}\nwritten\n"
        bashrc = Path(HOME) / ".bashrc"
        assert not bashrc.exists() or bashrc.read_text() != "x\n"
    finally:
        marker.unlink()


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/var/tmp", "/run"])
def test_scratch_places_are_the_sandboxs_own(sandbox: Sandbox, place: str) -> None:
    name = f"from-inside-{sandbox.id}"
    assert sandbox.exec(f"echo x > {place}/{name} && cat {place}/{name}").stdout == "x\n"
    assert not os.path.exists(f"{place}/{name}")


def test_a_scratch_place_has_a_bound(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "scratch_size": "1m"}}) as sandbox:
        for place in ("/tmp", "/dev/shm", HOME, "/run"):
            assert "No space left" in sandbox.exec(f"head -c 3000000 /dev/zero > {place}/big").stderr


def test_other_projects_and_parents_are_not_there(sandbox: Sandbox, project: Path) -> None:
    (project.parent / "other").mkdir()
    (project.parent / "other" / "secret").write_text("x")
    assert sandbox.exec(["cat", "../other/secret"]).exit_code != 0
    assert sandbox.exec(["ls", ".."]).stdout == "project\n"


@pytest.mark.process_walls("a link into the machine's /tmp is refused there")
def test_links_in_the_project_lead_nowhere_outside(sandbox: Sandbox, project: Path) -> None:
    outside = project.parent / "outside"
    outside.write_text("secret")
    (project / "link").symlink_to(outside)
    (project / "etc").symlink_to("/etc")
    assert sandbox.exec(["cat", "link"]).exit_code != 0
    with pytest.raises(OSError):
        sandbox.read_file("link")
    assert sandbox.exec(["cat", "etc/shadow"]).exit_code != 0
    sandbox.write_file("link", "overwritten")  # lands in the sandbox's own /tmp, where the link leads inside
    assert outside.read_text() == "secret"


def test_a_link_above_what_does_not_exist_leads_nowhere_outside(sandbox: Sandbox, project: Path) -> None:
    outside = project.parent / "outside"
    outside.mkdir()
    (project / "link").symlink_to(outside)
    sandbox.exec("mkdir -p link/new/deep; echo x > link/new/deep/file; echo x > link/file")
    for act in (sandbox.mkdir, lambda path: sandbox.write_file(path, "x")):
        try:
            act("link/other/deep")
        except OSError:
            pass  # refused, or made in the sandbox's own /tmp, where the link leads inside
    assert list(outside.iterdir()) == []


def test_a_link_swapped_while_files_are_written_never_leads_outside(sandbox: Sandbox, project: Path) -> None:
    outside = project.parent / "outside"
    outside.mkdir()
    swapping = sandbox.spawn(f"while :; do ln -sfn {outside} d; rm -f d; mkdir -p d; rm -rf d; done 2>/dev/null")
    with swapping:
        for number in range(150):
            try:
                sandbox.write_file(f"d/file{number}", "x")
            except OSError:
                pass
    assert list(outside.iterdir()) == []


@pytest.mark.process_walls("a machine shows its kernel's threads")
def test_processes_of_the_host_are_not_there(sandbox: Sandbox) -> None:
    seen = sandbox.exec("for p in /proc/[0-9]*; do cat $p/comm; done").stdout.split()
    assert set(seen) <= {"guest", "sh", "cat"}
    assert sandbox.exec(["kill", "-0", str(os.getpid())]).exit_code != 0


def test_the_guest_shows_nothing_of_itself(sandbox: Sandbox) -> None:
    for name in ("mem", "maps", "exe", "root", "cwd", "fd/3", "environ"):
        result = sandbox.exec(f"head -c 1 /proc/1/{name} >/dev/null && readlink /proc/1/{name}")
        assert result.exit_code != 0 or name == "environ", name
    assert sandbox.exec(["cat", "/proc/1/environ"]).stdout == ""


def test_a_socket_of_the_host_cannot_be_reached(sandbox: Sandbox, project: Path) -> None:
    path = Path("/tmp") / f"{sandbox.id}.sock"
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract:
        named.bind(str(path))
        named.listen()
        abstract.bind(f"\0{sandbox.id}")
        abstract.listen()
        try:
            code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1].replace('@', chr(0)))"
            for address in (str(path), f"@{sandbox.id}"):
                assert sandbox.exec(["/usr/bin/python3", "-c", code, address]).exit_code != 0
        finally:
            path.unlink()


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/dev/shm", "/run", "~"])
def test_sockets_where_agents_and_daemons_have_theirs_are_out_of_reach(sandbox: Sandbox, place: str) -> None:
    # tmux, X11 and ssh-agent: /tmp; docker, podman and D-Bus: /run; gpg-agent: the home directory.
    directory = Path(place).expanduser()
    if not os.access(directory, os.W_OK):
        pytest.skip("only root can put one there")
    path = directory / f".{sandbox.id}.sock"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(path))
        agent.listen()
        try:
            code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
            assert "FileNotFoundError" in sandbox.exec(["/usr/bin/python3", "-c", code, str(path)]).stderr
        finally:
            path.unlink()


def test_the_hosts_loopback_is_not_the_sandboxs(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = "import socket,sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
        assert sandbox.exec(["/usr/bin/python3", "-c", code, str(port)]).exit_code != 0
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_descriptors_of_the_owner_are_not_inherited(project: Path) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    directory = os.open("/", os.O_RDONLY)
    os.set_inheritable(directory, True)
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        listed = sandbox.exec("exec ls /proc/self/fd").stdout.split()
        assert listed == ["0", "1", "2", "3"]  # 3 is the one ls reads the directory by
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)
    os.close(directory)


def test_further_paths_can_be_shown(project: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("data")
    (tmp_path / "out").mkdir()
    config = {
        "filesystem": {
            "root": str(project),
            "allow_read": [str(tmp_path / "data")],
            "allow_write": [str(tmp_path / "out")],
        }
    }
    with Sandbox(config) as sandbox:
        assert sandbox.exec(f"cat {tmp_path}/data/x; echo y > {tmp_path}/out/y").stdout == "data"
        assert sandbox.exec(f"echo z > {tmp_path}/data/x").exit_code != 0
    assert (tmp_path / "out" / "y").read_text() == "y\n"


def test_programs_under_the_home_directory_work_and_their_secrets_do_not(tmp_path: Path, project: Path) -> None:
    home = tmp_path / "home"
    (home / ".cargo/bin").mkdir(parents=True)
    (home / ".cargo/bin/tool").write_text("#!/bin/sh\necho it works\n")
    (home / ".cargo/bin/tool").chmod(0o755)
    (home / ".cargo/credentials.toml").write_text("token")
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/share/uv/tools/thing/bin").mkdir(parents=True)
    (home / ".local/share/uv/tools/thing/bin/thing").write_text("#!/bin/sh\necho a thing\n")
    (home / ".local/share/uv/tools/thing/bin/thing").chmod(0o755)
    (home / ".local/bin/thing").symlink_to(home / ".local/share/uv/tools/thing/bin/thing")
    (home / ".local/share/private").write_text("private")
    code = (
        "from sandbox import Sandbox\n"
        "with Sandbox() as s:\n"
        "    print(s.exec('tool; thing; cat ~/.cargo/credentials.toml ~/.local/share/private').stdout)\n"
    )
    environment = {"HOME": str(home), "PATH": f"{home}/.cargo/bin:{home}/.local/bin:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "it works\na thing", done.stderr


@pytest.mark.parametrize("root", ["/", "/usr", "/etc", "/proc/self", "/dev", "/sys/kernel", "/tmp", "/home", "/var"])
def test_the_machine_itself_is_not_a_project(root: str) -> None:
    with pytest.raises(ConfigError, match="contains the system|its own|not a directory"):
        Sandbox({"filesystem": {"root": root}})


def test_a_root_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="not a directory"):
        Sandbox({"filesystem": {"root": "/nowhere/at/all"}})


def test_nothing_in_the_guest_reveals_where_the_host_keeps_it(sandbox: Sandbox) -> None:
    look = (
        "for f in cmdline comm maps environ stat status wchan cgroup; do cat /proc/1/$f; done; "
        "for f in exe cwd root fd/0 fd/3; do readlink /proc/1/$f; done; ps ax -o args"
    )
    seen = sandbox.exec(f"({look}) 2>/dev/null").stdout.replace("\0", "\n")
    installed = os.path.dirname(guest_binary())
    assert "guest" in seen.splitlines()
    for telling in (".host", installed, os.path.realpath(installed), "/proc/self/fd"):
        assert telling not in seen
    # The same while it is built: what a tenant's mounts are made of is not to be seen either.
    assert "/.host" not in sandbox.exec("cat /proc/self/mountinfo /proc/self/mounts").stdout
