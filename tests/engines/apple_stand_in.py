#!/usr/bin/env python3
"""Stands in for Apple's `container`, which exists only on a Mac: the same words and answers, with bubblewrap in place
of a virtual machine. As in a machine, no socket or descriptor crosses but stdin and stdout, which are pipes.

It takes no option that the reference (docs/command-reference.md of apple/container) does not have.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

STATE = Path(__file__).resolve().parent / "state"
MOST = 65536


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="container", allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", allow_abbrev=False)
    for flag in ("--interactive", "--rm", "--no-dns", "--detach"):
        run.add_argument(flag, action="store_true")
    for one in ("--progress", "--name", "--network", "--user", "--workdir", "--cpus", "--memory", "--entrypoint"):
        run.add_argument(one)
    for many in ("--label", "--cap-drop", "--cap-add", "--ulimit", "--volume", "--env"):
        run.add_argument(many, action="append", default=[])
    run.add_argument("image")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    listing = verbs.add_parser("list")
    listing.add_argument("--all", action="store_true")
    listing.add_argument("--format")
    for name in ("delete", "stop", "inspect"):
        verb = verbs.add_parser(name, aliases=["rm"] if name == "delete" else [])
        verb.add_argument("--force", action="store_true")
        verb.add_argument("ids", nargs="+")
    image = verbs.add_parser("image").add_subparsers(dest="what", required=True)
    image.add_parser("inspect").add_argument("name")
    image.add_parser("load").add_argument("--input", required=True)
    pull = image.add_parser("pull")
    pull.add_argument("--progress")
    pull.add_argument("name")
    status = verbs.add_parser("system").add_subparsers(dest="what", required=True).add_parser("status")
    status.add_argument("--format")
    return top


def fail(text: str) -> None:
    sys.exit(f"Error: {text}")


def known() -> list[Path]:
    return sorted(STATE.glob("container-*.json"))


def file_of(name: str) -> Path:
    return STATE / f"container-{name}.json"


def image(asked: argparse.Namespace) -> None:
    images = STATE / "images"
    names = images.read_text().splitlines() if images.exists() else []
    if asked.what == "load":
        import tarfile

        with tarfile.open(asked.input) as archive:
            index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
        names += [one["annotations"]["org.opencontainers.image.ref.name"] for one in index["manifests"]]
        images.write_text("\n".join(names))
    elif asked.what == "inspect" and asked.name in names:
        print(json.dumps([{"name": asked.name, "variants": []}]))
    else:
        fail(f'notFound: "image not found: {asked.name}"')


def machine(asked: argparse.Namespace) -> list[str]:
    """bubblewrap's arguments: what a machine would be."""
    words = ["bwrap", "--unshare-all", "--uid", "0", "--gid", "0", "--as-pid-1", "--clearenv", "--new-session"]
    words += ["--die-with-parent", "--cap-drop", "ALL"]
    for one in asked.cap_add:
        words += ["--cap-add", f"CAP_{one}"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for volume in asked.volume:
        source, target, *options = volume.split(":")
        if not os.path.lexists(source) or options not in ([], ["ro"]):
            fail(f"invalidArgument: \"path '{source}' does not exist\"")
        words += ["--ro-bind" if options else "--bind", source, target]
    return [*words, "--chdir", asked.workdir or "/", "--", asked.entrypoint, *asked.arguments]


def pump(source: int, target: int) -> None:
    while data := os.read(source, MOST):
        while data:
            data = data[os.write(target, data) :]
    os.close(target)


def run(asked: argparse.Namespace) -> int:
    images = (STATE / "images").read_text().splitlines() if (STATE / "images").exists() else []
    if asked.image not in images:
        fail(f'notFound: "{asked.image}"')
    if asked.network != "none" or not asked.interactive or asked.user != "0:0":
        fail("this stand-in has no network, no terminal and no users")
    if asked.cpus is not None and not asked.cpus.isdecimal():
        fail(f"The value '{asked.cpus}' is invalid for '--cpus <cpus>'")
    file = file_of(asked.name)
    if file.exists():
        fail(f'exists: "container with id {asked.name} already exists"')
    process = subprocess.Popen(machine(asked), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    labels = dict(one.split("=", 1) for one in asked.label)
    resources = {"cpus": asked.cpus, "memory": asked.memory}
    configuration = {"id": asked.name, "labels": labels, "resources": resources}
    told = {"id": asked.name, "configuration": configuration, "status": {"state": "running"}, "pid": process.pid}
    file.write_text(json.dumps(told))
    inwards = threading.Thread(target=pump, args=(0, process.stdin.fileno()), daemon=True)
    outwards = threading.Thread(target=pump, args=(process.stdout.fileno(), 1), daemon=True)
    inwards.start()
    outwards.start()
    status = process.wait()
    outwards.join()
    if asked.rm:
        file.unlink(missing_ok=True)
    else:
        file.write_text(json.dumps({**told, "status": {"state": "stopped"}}))
    return status


def end(asked: argparse.Namespace) -> None:
    for name in asked.ids:
        file = file_of(name)
        if not file.exists():
            fail(f'notFound: "container not found: {name}"')
        told = json.loads(file.read_text())
        if told["status"]["state"] == "running" and not asked.force and asked.verb != "stop":
            fail("invalidState: container is running")
        try:
            os.kill(told["pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass
        file.unlink(missing_ok=True)


def main() -> int:
    asked = parser().parse_args()
    STATE.mkdir(exist_ok=True)
    with open(STATE / "words", "a", encoding="utf-8") as words:
        words.write(json.dumps(sys.argv[1:]) + "\n")
    if asked.verb == "system":
        if (STATE / "stopped").exists():
            print(json.dumps({"status": "not running"}))
            return 1
        print(json.dumps({"status": "running", "apiServerVersion": "container-apiserver version 1.0.0"}))
    elif asked.verb == "image":
        image(asked)
    elif asked.verb == "run":
        return run(asked)
    elif asked.verb == "list":
        print(json.dumps([json.loads(one.read_text()) for one in known()]))
    elif asked.verb == "inspect":
        print(json.dumps([json.loads(file_of(one).read_text()) for one in asked.ids]))
    else:
        end(asked)
    return 0


def install(place: Path) -> Path:
    """Puts it where the engine finds its command. Returns the directory with its state."""
    place.mkdir(parents=True, exist_ok=True)
    program = place / "container"
    shutil.copyfile(__file__, program)
    lines = program.read_text().split("\n", 1)
    program.write_text(f"#!{sys.executable} -IS\n{lines[1]}")  # nothing but the standard library: it starts fast
    program.chmod(0o755)
    return place / "state"


if __name__ == "__main__":
    sys.exit(main())
