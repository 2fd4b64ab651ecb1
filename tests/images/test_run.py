"""What runs in an image sees the image's files around the project, changes a layer that ends with the sandbox, and gets
nothing else than it would get without an image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import ConfigError
from sandbox.images import manage
from sandbox.images.importing import import_path
from tests.images import making
from tests.images.making import directory, file, link, tar
from tests.sandboxes import Command, cli, home  # noqa: F401 - fixtures

pytestmark = pytest.mark.walls


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


def say(image: str, command: str, project: Path, **more: object) -> str:
    """What a command in a sandbox with this image prints."""
    with Sandbox({"image": image, "filesystem": {"root": str(project)}, **more}) as sandbox:
        done = sandbox.exec(["/bin/sh", "-c", command])
    return (done.stdout + done.stderr).strip()


def test_the_images_files_are_at_the_root_and_the_projects_at_its_own_path(shared: Path, project: Path) -> None:
    (project / "mine").write_text("of the project")
    assert say("plain", "cat /etc/os-release mine; ls /usr", project).split("\n") == ["ID=test", "of the projectbin"]


def test_nothing_of_the_hosts_system_or_of_the_staging_place_is_there(shared: Path, project: Path) -> None:
    listed = say("plain", "ls -A /; ls /usr/bin/python3 /usr/share", project)
    names = set(listed.split("\n")[: listed.count("\n") - 1])
    assert {"usr", "etc", "proc", "dev", "tmp"} <= names
    assert not names & {".host", ".image", "lib32", "boot", "var"} - {"var"}
    assert "python3" in listed and "No such file" in listed


def test_changes_go_to_a_layer_that_ends_with_the_sandbox(shared: Path, project: Path) -> None:
    before = making.tree(shared)
    said = say("plain", "echo new > /usr/bin/new; rm /etc/os-release; echo x > /made; ls /usr/bin/new /made", project)
    assert said.split() == ["/made", "/usr/bin/new"]
    assert say("plain", "cat /etc/os-release; ls /made", project).startswith("ID=test")
    assert making.tree(shared) == before


def test_a_directory_can_be_removed_and_made_again(shared: Path, project: Path) -> None:
    assert say("said", "rm -r /srv/app && mkdir /srv/app && touch /srv/app/x && ls /srv/app", project) == "x"


@pytest.mark.root  # the limits of `max` need a control group
def test_in_mode_max_nothing_of_the_image_can_be_changed(shared: Path, project: Path) -> None:
    said = say("plain", "touch /usr/x /x; touch $HOME/own /tmp/own && echo home", project, mode="max")
    assert said.count("Read-only file system") == 2 or said.count("Permission denied") == 2
    assert said.startswith("home")


def test_blocked_files_of_the_project_are_hidden_in_the_layer_too(shared: Path, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1")
    said = say("plain", f"cat .env {project}/.env; mv {project} /elsewhere", project)
    assert "TOKEN" not in said
    assert (project / ".env").read_text() == "TOKEN=1"


def test_a_network_goes_through_the_gate_as_without_an_image(shared: Path, project: Path) -> None:
    assert "nameserver 198.18.0.2" in say("plain", "cat /etc/resolv.conf", project)


def test_the_hosts_variables_stay_outside_unless_they_are_named(
    shared: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/host")
    monkeypatch.setenv("EDITOR", "of-the-host")
    monkeypatch.setenv("WANTED", "by name")
    environment = {"allow": ["WANTED"], "set": {"SAID": "here"}}
    seen = say("said", "env", project, environment=environment).split("\n")
    assert {"OWN=value", "PATH=/usr/bin", "WANTED=by name", "SAID=here"} <= set(seen)
    assert not [one for one in seen if one.startswith(("PYTHONPATH", "EDITOR"))]


def test_the_images_user_is_the_tenants_name_and_an_explicit_one_wins(shared: Path, project: Path) -> None:
    assert "uid=33(web) gid=34(web)" in say("said", "id", project)
    assert "uid=0(root)" in say("said", "id", project, user="root")
    assert "uid=0" not in say("plain", "id", project)


def test_a_directory_is_an_image_too(shared: Path, project: Path, tmp_path: Path) -> None:
    root = next((shared / "by-digest").iterdir()) / "root"
    assert "ID=test" in say(str(root), "cat /etc/os-release", project)


def test_an_image_that_is_not_here_says_how_to_get_it(shared: Path, project: Path) -> None:
    with pytest.raises(ConfigError, match="sandbox images build minimal"):
        Sandbox({"image": "minimal", "filesystem": {"root": str(project)}})
    with pytest.raises(ConfigError, match="sandbox images import"):
        Sandbox({"image": "unknown", "filesystem": {"root": str(project)}})
    with pytest.raises(ConfigError, match="not a name for an image"):
        Sandbox({"image": "Some Thing", "filesystem": {"root": str(project)}})


def test_host_and_names_for_it_mean_no_image(shared: Path, project: Path) -> None:
    for config in ({"image": "host"}, {"image": "standard", "image_names": {"standard": "host"}}):
        with Sandbox({**config, "filesystem": {"root": str(project)}}) as sandbox:
            assert sandbox.exec("ls /usr/share").exit_code == 0


def test_a_name_of_the_configuration_leads_to_an_image(shared: Path, project: Path) -> None:
    assert say("mine", "cat /etc/os-release", project, image_names={"mine": "plain"}) == "ID=test"


def test_an_image_cannot_be_combined_with_the_whole_host(shared: Path, project: Path) -> None:
    with pytest.raises(ConfigError, match="show_host"):
        Sandbox({"image": "plain", "filesystem": {"root": str(project), "show_host": True}})
    with pytest.raises(ConfigError, match="image"):
        Sandbox({"image": "plain", "mode": "off", "filesystem": {"root": str(project)}})


def test_an_image_in_use_cannot_be_removed(empty_store: Path, project: Path, tmp_path: Path) -> None:
    manage.name(import_path(str(making.layout(tmp_path / "layout", [making.system()]))), "used")
    with Sandbox({"image": "used", "filesystem": {"root": str(project)}}) as sandbox:
        with pytest.raises(Exception, match="a sandbox uses the image used"):
            manage.remove("used")
        assert sandbox.exec(["/bin/sh", "-c", "cat /etc/os-release"]).stdout == "ID=test\n"
    manage.remove("used")
    assert not list((empty_store / "by-digest").iterdir())


HOSTILE = {
    "etc leads to the host's files": [link("etc", "/.host/etc")],
    "etc leads out by the launcher's name for it": [link("etc", "../../.host/etc")],
    "passwd leads to a file of the host": [directory("etc"), link("etc/passwd", "/.host{victim}")],
    "resolv.conf is a pipe": [directory("etc"), making.entry("etc/resolv.conf", b"6")],
    "proc is a link": [link("proc", "/etc")],
    "dev is a file": [file("dev", b"x")],
    "tmp is a link": [link("tmp", "/.host/tmp")],
    "the project's parents are links": [link("{top}", "/.host")],
    "the home is a link": [link("{home}", "/.host{home_path}")],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_image_leads_nobody_to_the_hosts_files(
    what: str, empty_store: Path, project: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("of the host")
    person = os.path.expanduser("~")
    names = {"victim": victim, "top": str(project).split("/")[1], "home": person.split("/")[1], "home_path": person}
    entries = []
    for member, content in HOSTILE[what]:
        made, _ = file(member.name.format(**names), content)
        made.type, made.mode, made.linkname = member.type, member.mode, member.linkname.format(**names)
        entries.append((made, content))
    names_made = {member.name for member, _ in entries}
    layers = [making.system(), tar([(member, content) for member, content in entries])]
    manage.name(import_path(str(making.layout(tmp_path / "layout", layers))), "hostile")
    before = {name: os.lstat(f"/etc/{name}").st_mtime_ns for name in ("passwd", "group", "hosts", "resolv.conf")}
    said = say(
        "hostile",
        "cat /etc/passwd /etc/hostname; touch $HOME/by-an-image /tmp/by-an-image; ls -d . /proc/self/root",
        project,
    )
    assert "root:x:0:0:" in said and "\nsandbox\n" in said, (names_made, said)
    assert victim.read_text() == "of the host"
    assert {name: os.lstat(f"/etc/{name}").st_mtime_ns for name in before} == before
    assert not os.path.exists(f"{person}/by-an-image") and not os.path.exists("/tmp/by-an-image")
    assert sorted(os.listdir(project)) == []


def test_an_image_with_an_entry_of_the_staging_places_name_is_refused(
    empty_store: Path, project: Path, tmp_path: Path
) -> None:
    layers = [making.system(), tar([directory(".host")])]
    manage.name(import_path(str(making.layout(tmp_path / "layout", layers))), "hostile")
    with pytest.raises(Exception, match="image"):
        Sandbox({"image": "hostile", "filesystem": {"root": str(project)}})


# -- the command line


def test_without_a_command_the_images_own_runs_where_the_image_says(cli: Command, shared: Path) -> None:  # noqa: F811
    done = cli("run", "--image", "said")
    assert (done.stdout, done.returncode) == ("from the image: yes value\n/srv/app\n", 0), done.stderr


def test_a_command_is_given_to_the_entry_point_and_starts_in_the_project(cli: Command, shared: Path) -> None:  # noqa: F811
    done = cli("run", "--image", "said", "--", "sh", "-c", "echo $GREETED; pwd")
    assert done.stdout.split() == ["yes", os.getcwd()], done.stderr


def test_an_image_without_a_command_needs_one(cli: Command, shared: Path) -> None:  # noqa: F811
    done = cli("run", "--image", "plain")
    assert done.returncode == 125
    assert "the image plain names none" in done.stderr
    assert "no command" in cli("run", "--image", "host").stderr


def test_a_project_cannot_choose_the_image(cli: Command, home: Path, shared: Path) -> None:  # noqa: F811
    Path(".sandbox").mkdir()
    Path(".sandbox/config.yaml").write_text("image: plain\n")
    done = cli("run", "--", "ls", "/usr/share")
    assert done.returncode == 0, done.stderr
    assert "image" in done.stderr and "ignored" in done.stderr


# -- certificates

OWN = b"-----BEGIN CERTIFICATE-----\nT1dOIE9GIFRIRSBJTUFHRQ==\n-----END CERTIFICATE-----\n"
STORES = {
    "Debian": ([file("etc/ssl/certs/ca-certificates.crt", OWN)], "/etc/ssl/certs/ca-certificates.crt"),
    "Alpine": (
        [file("etc/ssl/certs/ca-certificates.crt", OWN), link("etc/ssl/cert.pem", "certs/ca-certificates.crt")],
        "/etc/ssl/cert.pem",
    ),
    "Fedora": (
        [
            file("etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", OWN),
            link("etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
            link("etc/ssl/certs", "../pki/tls/certs"),
        ],
        "/etc/ssl/certs/ca-bundle.crt",
    ),
}


@pytest.mark.parametrize("kind", STORES)
def test_the_gates_authority_is_in_the_images_own_bundle_beside_its_own_certificates(
    kind: str, empty_store: Path, project: Path, tmp_path: Path
) -> None:
    entries, path = STORES[kind]
    layers = [making.system(), tar(entries)]
    manage.name(import_path(str(making.layout(tmp_path / "layout", layers))), "it")
    authority, bundle = say("it", f"cat /etc/sandbox-ca.pem; echo @@; cat {path}", project).split("@@")
    assert OWN.decode() in bundle
    assert authority.strip() and authority.strip() in bundle
    assert say("it", f"cat {path}", project) == bundle.strip()  # the same the second time, when it was kept


def test_an_image_without_certificates_gets_this_machines_and_the_gates(shared: Path, project: Path) -> None:
    told = say("plain", "cat /etc/sandbox-ca.pem; echo @@; cat /etc/ssl/certs/ca-certificates.crt", project)
    authority, bundle = told.split("@@")
    assert authority.strip() in bundle
    assert bundle.count("BEGIN CERTIFICATE") > 1


def test_a_java_of_the_image_trusts_the_gate(empty_store: Path, project: Path, tmp_path: Path) -> None:
    entries = [file("etc/ssl/cert.pem", OWN), file("usr/lib/jvm/any/lib/security/cacerts", b"of the image")]
    manage.name(import_path(str(making.layout(tmp_path / "layout", [making.system(), tar(entries)]))), "it")
    store_ = say("it", "cat /usr/lib/jvm/any/lib/security/cacerts | cat", project)
    assert "of the image" not in store_ and "X.509" in store_
