"""Images from registries: a real one (docker-registry) with images that skopeo and umoci made, and hostile ones."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.config.model import Config
from sandbox.errors import ImageError
from sandbox.images import manage, store
from sandbox.images.bounds import Bounds
from sandbox.images.names import Reference, reference
from sandbox.images.progress import ShownProgress
from sandbox.images.pull import Registry, pull
from tests.images import making
from tests.images.making import ARCH, Blobs, digest, directory, file, tar
from tests.images.servers import Request, Server, serving
from tests.ports import unused_port
from tests.sandboxes import Command, cli, home  # noqa: F401 - fixtures

LAYERS = [tar([directory("d"), file("d/x", b"one"), file("gone")]), tar([file(".wh.gone"), file("d/y", b"two")])]
SEEN = {"d": "d755", "d/x": "644 b'one'", "d/y": "644 b'two'"}
INDEX = "application/vnd.oci.image.index.v1+json"


def ask(text: str) -> Reference:
    found = reference(text)
    assert found is not None
    return found


def seen(name: str) -> dict[str, str]:
    image = store.find(name)
    image.release()
    return making.tree(image.root)


# -- a registry of the test's own, which can be told to misbehave


class Offered:
    """An image on a small server that speaks the distribution API."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.blobs = Blobs()
        self.image = self.blobs.image(LAYERS, {"Cmd": ["x"]})
        self.manifest(self.blobs.data[self.image["digest"]], "1")

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}/some/tool"

    def manifest(self, data: bytes, *tags: str) -> None:
        for name in (*tags, digest(data)):
            self.server.file(f"/v2/some/tool/manifests/{name}", data)
        for name, blob in self.blobs.data.items():
            self.server.file(f"/v2/some/tool/blobs/{name}", blob)
            self.server.answers.setdefault(f"/v2/some/tool/manifests/{name}", lambda request: request.say(404))
        for one in self.blobs.data:
            if b'"layers"' in self.blobs.data[one]:
                self.server.file(f"/v2/some/tool/manifests/{one}", self.blobs.data[one])


@pytest.fixture
def offered(empty_store: Path) -> Iterator[Offered]:
    with serving() as server:
        yield Offered(server)


def test_an_image_is_fetched_by_tag_and_named_by_its_reference(offered: Offered, empty_store: Path) -> None:
    assert pull(ask(f"{offered.name}:1"), Config()) == offered.image["digest"]
    assert seen(f"{offered.name}:1") == SEEN
    assert not list((empty_store / "blobs").iterdir())


def test_a_pinned_digest_is_what_is_fetched_and_another_one_is_refused(offered: Offered) -> None:
    pinned = f"{offered.name}:1@{offered.image['digest']}"
    pull(ask(pinned), Config())
    assert seen(pinned) == SEEN
    other = offered.blobs.image([tar([file("another")])])
    data = offered.blobs.data[other["digest"]]
    wrong = f"{offered.name}@sha256:{'0' * 64}"
    offered.server.file(f"/v2/some/tool/manifests/sha256:{'0' * 64}", data)
    with pytest.raises(ImageError, match="another digest"):
        pull(ask(wrong), Config())


def test_a_pinned_index_leads_to_this_platforms_image(offered: Offered) -> None:
    other = offered.blobs.image([tar([file("another")])], arch="riscv64")
    index = offered.blobs.index([other, offered.image])
    offered.manifest(index, "many")
    pinned = f"{offered.name}:many@{digest(index)}"
    pull(ask(pinned), Config())
    assert seen(pinned) == seen(f"{offered.name}:many") == SEEN
    assert len(manage.entries()) == 1
    manage.remove(f"{offered.name}:many")
    manage.prune()
    assert manage.entries() == []


def test_a_token_is_fetched_where_the_registry_says_and_goes_with_every_request(
    offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = offered.server
    login = base64.b64encode(b"me:secret").decode()
    host = offered.name.partition("/")[0]
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    challenge = f'Bearer realm="{server.url}/token",service="it",scope="repository:some/tool:pull"'
    for path, real in list(server.answers.items()):

        def guarded(request: Request, real: Any = real) -> None:
            if request.headers.get("Authorization") != "Bearer good":
                return request.say(401, Www_Authenticate=challenge)
            real(request)

        server.answers[path] = guarded
    server.file("/token", json.dumps({"token": "good"}).encode())
    pull(ask(f"{offered.name}:1"), Config())
    assert seen(f"{offered.name}:1") == SEEN
    asked = [one for one in server.seen if one[0].startswith("/token")]
    assert asked == [("/token?service=it&scope=repository%3Asome%2Ftool%3Apull", None, f"Basic {login}")]


@pytest.mark.parametrize("realm", ["http://169.254.169.254/x", "https://10.0.0.1/x", "file:///etc/passwd", ""])
def test_no_registry_sends_the_login_to_a_private_address(offered: Offered, realm: str) -> None:
    for path in list(offered.server.answers):
        offered.server.answers[path] = lambda request: request.say(401, Www_Authenticate=f'Bearer realm="{realm}"')
    with pytest.raises(ImageError):
        pull(ask(f"{offered.name}:1"), Config())


@pytest.fixture
def login(offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The person's login for the registry, as it goes out."""
    said = base64.b64encode(b"me:secret").decode()
    hosts = [offered.name.partition("/")[0], "docker.io", "registry.example.com", "example.com"]
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {host: {"auth": said} for host in hosts}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    return f"Basic {said}"


@pytest.mark.parametrize(
    "realm",
    ["https://collector.example.net/token", "https://127.0.0.1.example.net/token", "https://[::ffff:1.2.3.4]/x", "//x"],
)
def test_a_login_is_not_sent_to_another_host_that_the_registry_names(
    offered: Offered, login: str, realm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise AssertionError("somebody was looked up")

    for path in list(offered.server.answers):
        offered.server.answers[path] = lambda request: request.say(401, Www_Authenticate=f'Bearer realm="{realm}"')
    real = socket.getaddrinfo

    def looked_up(host: str, *more: Any, **options: Any) -> Any:
        return real(host, *more, **options) if host == "127.0.0.1" else nobody()

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with pytest.raises(ImageError, match="login sent to another host"):
        pull(ask(f"{offered.name}:1"), Config())
    assert {one[2] for one in offered.server.seen} == {None}


@pytest.mark.parametrize(
    ("image", "realm", "good"),
    [
        ("docker.io/library/alpine:3", "https://auth.docker.io/token", True),
        ("registry.example.com/a/b:1", "https://example.com/jwt", True),
        ("registry.example.com/a/b:1", "https://other.example.com/jwt", False),
        ("example.com/a/b:1", "https://com/jwt", False),
        ("example.com/a/b:1", "https://notexample.com/jwt", False),
        ("docker.io/library/alpine:3", "https://auth.docker.io.example.net/token", False),
        ("docker.io/library/alpine:3", "https://auth.docker.io@example.net/token", False),
    ],
)
def test_tokens_are_given_within_the_registrys_own_domain(image: str, realm: str, good: bool) -> None:
    registry = Registry(ask(image), [], ShownProgress())
    assert registry._is_of_the_registry(realm) is good


def test_neither_login_nor_token_follows_a_redirect(offered: Offered, login: str) -> None:
    server = offered.server
    layer = json.loads(offered.blobs.data[offered.image["digest"]])["layers"][0]["digest"]
    content = offered.blobs.data[layer]
    for path, real in list(server.answers.items()):

        def guarded(request: Request, real: Any = real) -> None:
            if request.headers.get("Authorization") != "Bearer good":
                return request.say(401, Www_Authenticate=f'Bearer realm="{server.url}/token"')
            real(request)

        server.answers[path] = guarded
    server.answers["/token"] = lambda request: request.say(307, Location="/elsewhere/token")
    server.file("/elsewhere/token", json.dumps({"token": "good"}).encode())
    server.answers[f"/v2/some/tool/blobs/{layer}"] = lambda request: request.say(307, Location="/elsewhere/blob")
    server.file("/elsewhere/blob", content)
    pull(ask(f"{offered.name}:1"), Config())
    assert seen(f"{offered.name}:1") == SEEN
    elsewhere = {sent for path, _, sent in server.seen if path.startswith("/elsewhere")}
    assert elsewhere == {None} and login in {sent for _, _, sent in server.seen}


def nothing_is_left(empty_store: Path) -> bool:
    manage.prune()
    return manage.entries() == [] and not [one for one in empty_store.rglob("*") if one.is_file()]


def test_a_manifest_that_changes_between_requests_is_one_image_or_none(offered: Offered, empty_store: Path) -> None:
    """The one that was asked for with the token is the one that is used; a pinned one must be it."""
    other = offered.blobs.image([tar([file("another")])])
    offered.manifest(offered.blobs.data[other["digest"]], "other")
    turns = [offered.blobs.data[one["digest"]] for one in (other, offered.image)] * 5
    path = "/v2/some/tool/manifests/"
    for name in ("1", str(offered.image["digest"])):
        offered.server.answers[path + name] = lambda request: request.say(200, turns.pop(0))
    assert pull(ask(f"{offered.name}:1"), Config()) == other["digest"]
    assert set(seen(f"{offered.name}:1")) == {"another"}
    turns.insert(0, offered.blobs.data[other["digest"]])
    with pytest.raises(ImageError, match="another digest"):
        pull(ask(f"{offered.name}@{offered.image['digest']}"), Config())


def index_of(offered: Offered, entries: list[dict[str, Any]]) -> dict[str, Any]:
    data = offered.blobs.index(entries)
    offered.manifest(data, "bomb")
    offered.blobs.data[digest(data)] = data
    return {"mediaType": INDEX, "digest": digest(data), "size": len(data)}


def test_indexes_in_indexes_end(offered: Offered, empty_store: Path) -> None:
    entry = offered.image
    for _ in range(50):
        entry = index_of(offered, [entry])
        offered.server.file(f"/v2/some/tool/manifests/{entry['digest']}", offered.blobs.data[entry["digest"]])
    with pytest.raises(ImageError, match="only further indexes"):
        pull(ask(f"{offered.name}:bomb"), Config())
    assert sum("/manifests/" in path for path, *_ in offered.server.seen) < 10
    assert nothing_is_left(empty_store)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"manifests": [' + (b'{"digest": "sha256:' + b"0" * 64 + b'"},') * 200_000 + b"{}]}", "longer|too long"),
        (b'{"config": ' * 50_000 + b"{}" + b"}" * 50_000, "not a JSON object|no configuration"),
        (b'{"config": {"digest": "sha256:../../../x"}, "layers": []}', "not a sha256 digest"),
        (b'{"config": {"digest": "sha256:%064d"}, "layers": [' % 0 + b"{}," * 5000 + b"{}]}", "no layers"),
    ],
)
def test_a_manifest_that_is_a_bomb_or_a_path_is_refused(
    offered: Offered, empty_store: Path, answer: bytes, why: str
) -> None:
    offered.server.file("/v2/some/tool/manifests/bomb", answer)
    with pytest.raises(ImageError, match=why):
        pull(ask(f"{offered.name}:bomb"), Config())
    assert nothing_is_left(empty_store)


def test_a_manifest_without_end_is_not_read_to_it(offered: Offered, empty_store: Path) -> None:
    def endless(request: Request) -> None:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True
        while True:
            request.wfile.write(b" " * 65536)

    offered.server.answers["/v2/some/tool/manifests/1"] = endless
    with pytest.raises(ImageError, match="too long|longer"):
        pull(ask(f"{offered.name}:1"), Config())
    assert nothing_is_left(empty_store)


def test_layers_that_announce_more_than_an_image_may_have_are_not_downloaded(
    offered: Offered, empty_store: Path
) -> None:
    said = json.loads(offered.blobs.data[offered.image["digest"]])
    for layer in said["layers"]:
        layer["size"] = 20 << 30
    offered.server.file("/v2/some/tool/manifests/bomb", json.dumps(said).encode())
    with pytest.raises(ImageError, match="larger than this machine accepts"):
        pull(ask(f"{offered.name}:bomb"), Config())
    layers = {f"/v2/some/tool/blobs/{layer['digest']}" for layer in said["layers"]}
    assert not layers & {path for path, *_ in offered.server.seen}
    assert nothing_is_left(empty_store)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (tar([file("../../escaped", b"x")]), ""),
        (tar([making.link("out", "/"), file("out/escaped", b"x")]), ""),
        (tar([file("zeros", bytes(64 << 20))]), "unreasonable"),
    ],
)
def test_a_layer_of_a_registry_is_unpacked_as_carefully_as_any(
    offered: Offered, empty_store: Path, layer: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.images.importing.Bounds", lambda: Bounds(free=1 << 20, ratio=20))
    image = offered.blobs.image([layer])
    offered.manifest(offered.blobs.data[image["digest"]], "bad")
    if why:
        with pytest.raises(ImageError, match=why):
            pull(ask(f"{offered.name}:bad"), Config())
        assert nothing_is_left(empty_store)
    else:
        try:
            pull(ask(f"{offered.name}:bad"), Config())
        except ImageError:
            assert nothing_is_left(empty_store)
    assert not [one for one in empty_store.parent.rglob("escaped") if "root" not in one.parts]
    assert not os.path.exists("/escaped")


@pytest.mark.parametrize("which", ["config", "layer"])
def test_a_blob_that_is_another_one_is_refused_and_nothing_is_left(
    offered: Offered, empty_store: Path, which: str
) -> None:
    said = json.loads(offered.blobs.data[offered.image["digest"]])
    target = said["config"] if which == "config" else said["layers"][0]
    offered.server.file(f"/v2/some/tool/blobs/{target['digest']}", bytes(target["size"]))
    with pytest.raises(ImageError, match="another digest"):
        pull(ask(f"{offered.name}:1"), Config())
    assert manage.entries() == []
    manage.prune()
    assert [one for one in empty_store.rglob("*") if one.is_file()] == []


def test_an_image_that_is_asked_for_is_fetched_by_the_first_run(offered: Offered, tmp_path: Path) -> None:
    image = offered.blobs.image([making.system()])
    offered.manifest(offered.blobs.data[image["digest"]], "run")
    config = {"image": f"{offered.name}:run", "filesystem": {"root": str(tmp_path)}}
    for _ in range(2):
        with Sandbox(config) as sandbox:
            assert sandbox.exec(["/bin/sh", "-c", "cat /etc/os-release"]).stdout == "ID=test\n"
    manifests = [path for path, *_ in offered.server.seen if path.endswith("/manifests/run")]
    assert len(manifests) == 1


@pytest.mark.parametrize(
    "text", ["localhost/UPPER", "localhost/a:..", "localhost/a@sha256:x", "a b/c.d", "localhost/../x", "x..y/", "-.x/y"]
)
def test_an_invalid_reference_is_refused(text: str) -> None:
    with pytest.raises(ImageError):
        reference(text)


def test_references_are_read_as_docker_and_podman_do() -> None:
    found = ask("docker.io/library/alpine")
    assert (found.host, found.server, found.path, found.tag) == (
        "docker.io",
        "registry-1.docker.io",
        "library/alpine",
        "latest",
    )
    assert str(ask("localhost:5000/a/b:1")) == "localhost:5000/a/b:1"
    assert reference("alpine:3") is None  # a name of this machine's: no registry is the default


# -- the real ones


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's docker-registry on the loopback: host:port."""
    place = tmp_path_factory.mktemp("registry")
    port = unused_port()
    (place / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {place}/data}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    program = shutil.which("docker-registry")
    assert program, "scripts/setup dev"
    with open(place / "log", "wb") as log:
        server = subprocess.Popen([program, "serve", str(place / "config.yml")], stdout=log, stderr=log)
    try:
        while True:
            assert server.poll() is None, (place / "log").read_text()
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def skopeo(*words: str, place: Path) -> None:
    policy = place / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    environment = {**os.environ, "HOME": str(place), "XDG_RUNTIME_DIR": str(place)}
    command = ["skopeo", "--policy", str(policy), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def push(layout: str, name: str, place: Path, *words: str) -> None:
    skopeo("copy", "--dest-tls-verify=false", *words, f"oci:{layout}", f"docker://{name}", place=place)


def test_an_image_of_a_real_registry_runs(cli: Command, empty_store: Path, real: str, tmp_path: Path) -> None:  # noqa: F811
    said = {"Cmd": ["sh", "-c", "cat /etc/os-release /d/y"], "Env": ["PATH=/usr/bin"]}
    making.layout(tmp_path / "layout", [making.system(), *LAYERS], said)
    push(str(tmp_path / "layout"), f"{real}/tools/it:1", tmp_path)
    done = cli("run", "--image", f"{real}/tools/it:1")
    assert (done.stdout, done.returncode) == ("ID=test\ntwo", 0), done.stderr


@pytest.mark.parametrize(
    "way", [("--format", "v2s2"), ("--format", "oci"), ("--dest-compress-format", "zstd")], ids=str
)
def test_every_kind_of_manifest_and_compression_is_read(
    empty_store: Path, real: str, tmp_path: Path, way: tuple[str, ...]
) -> None:
    making.layout(tmp_path / "layout", LAYERS)
    push(str(tmp_path / "layout"), f"{real}/kinds/it:x", tmp_path, *way)
    pull(ask(f"{real}/kinds/it:x"), Config())
    assert seen(f"{real}/kinds/it:x") == SEEN


def test_what_umoci_made_and_changed_is_unpacked_as_it_is(empty_store: Path, real: str, tmp_path: Path) -> None:
    """A second layer with whiteouts, as umoci writes it when files were changed, removed and added."""
    place = tmp_path / "image"

    def umoci(*words: str) -> None:
        done = subprocess.run(["umoci", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    umoci("init", "--layout", str(place))
    umoci("new", "--image", f"{place}:it")
    for step in (1, 2):
        bundle = tmp_path / f"bundle{step}"
        umoci("unpack", "--rootless", "--image", f"{place}:it", str(bundle))
        root = bundle / "rootfs"
        if step == 1:
            (root / "d" / "deep").mkdir(parents=True)
            (root / "d" / "deep" / "x").write_text("one")
            (root / "gone").write_text("x")
            os.link(root / "gone", root / "stays")
            (root / "link").symlink_to("/d/deep")
        else:
            (root / "gone").unlink()
            shutil.rmtree(root / "d")
            (root / "d").mkdir(mode=0o700)
            (root / "d" / "new").write_text("two")
        umoci("repack", "--image", f"{place}:it", str(bundle))
    umoci("config", "--image", f"{place}:it", "--config.cmd", "sh", "--config.user", "1:2", "--config.workingdir", "/d")
    push(f"{place}:it", f"{real}/umoci/it:1", tmp_path)
    pull(ask(f"{real}/umoci/it:1"), Config())
    assert seen(f"{real}/umoci/it:1") == {
        "d": "d700",
        "d/new": "644 b'two'",
        "stays": "644 b'x'",
        "link": "-> /d/deep",
    }
    image = store.find(f"{real}/umoci/it:1")
    assert (image.cmd, image.user, image.workdir) == (["sh"], "1:2", "/d")
    image.release()


@pytest.mark.root  # skopeo gives what it unpacks to root, which nobody else may
def test_an_export_is_read_by_skopeo(empty_store: Path, tmp_path: Path) -> None:
    from sandbox.images.export import export
    from sandbox.images.importing import import_path

    manage.name(import_path(str(making.layout(tmp_path / "layout", LAYERS))), "it")
    image = store.find("it")
    export(image.root, {"Cmd": ["x"]}, str(tmp_path / "out.tar"), name="it", architecture=ARCH)
    image.release()
    for kind in ("oci-archive", "docker-archive"):
        skopeo("copy", f"{kind}:{tmp_path}/out.tar", f"oci:{tmp_path}/{kind}:it", place=tmp_path)
        manage.name(import_path(str(tmp_path / kind)), kind)
        assert seen(kind) == SEEN
