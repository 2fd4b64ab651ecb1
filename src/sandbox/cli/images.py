"""`sandbox images`: shows, imports, builds and removes the images on this machine."""

from __future__ import annotations

import os

from sandbox.cli.output import print_json, shown, table
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.images.manage import StoredImage


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox images list | inspect | import | export | name | build | rm | prune …"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listed = actions.add_parser("list", help=_("list the images on this machine"))
    listed.add_argument("--json", action="store_true", help=_("print JSON"))
    inspected = actions.add_parser("inspect", help=_("show everything about one image, as JSON"))
    inspected.add_argument("image", help=_("its name, reference or name@digest"))
    _add_import(actions.add_parser("import", help=_("import an image from an OCI layout, an archive or a registry")))
    exported = actions.add_parser("export", help=_("write an image as an archive for docker, podman and others"))
    exported.add_argument("image", help=_("its name, reference or name@digest"))
    exported.add_argument("file", help=_("the archive to write"))
    named = actions.add_parser("name", help=_("give an image, or the host's own system, another name"))
    named.add_argument("image", help=_("its name, reference or name@digest; or host"))
    named.add_argument("name", help=_("the new name"))
    _add_build(actions.add_parser("build", help=_("build a variant from Debian's packages, with mmdebstrap")))
    removed = actions.add_parser("rm", help=_("remove names, and images that have no other name"))
    removed.add_argument("image", nargs="+", help=_("names, references or name@digest"))
    actions.add_parser("prune", help=_("remove images without a name, and unfinished ones"))


def _add_import(parser: ArgumentParser) -> None:
    parser.add_argument("source", help=_("a directory, an archive, or host/path:tag[@sha256:…]"))
    parser.add_argument("--name", help=_("the image's name here (default: the reference)"))
    parser.add_argument("--ref", help=_("which one, where a layout or archive has several"))
    parser.add_argument("--arch", help=_("amd64 or arm64 (default: this machine's)"))


def _add_build(parser: ArgumentParser) -> None:
    parser.add_argument("variant", help=_("minimal, standard or full"))
    parser.add_argument("--arch", help=_("amd64 or arm64 (default: this machine's)"))
    parser.add_argument("--output", metavar="DIR", help=_("also write archive and manifest there, for `prefetch`"))
    parser.add_argument("--key", metavar="FILE", help=_("sign the manifest with this Ed25519 private key (PEM)"))
    parser.add_argument("--kernel", action="store_true", help=_("also put this machine's kernel into the manifest"))
    parser.add_argument("--version", default="1.0.0", help=_("the manifest's version"))


def run(arguments: Namespace) -> int:
    return int(_ACTIONS[arguments.action](arguments) or 0)


def _list(arguments: Namespace) -> None:
    from sandbox.images.manage import entries

    found = entries()
    if arguments.json:
        print_json([_told(one) for one in found])
    elif found:
        rows = [
            (", ".join(one.names) or "-", one.digest[7:19], one.architecture, f"{one.size / 2**20:.0f} MB")
            for one in found
        ]
        print(table(rows, ("NAME", "DIGEST", "ARCH", "SIZE")))


def _inspect(arguments: Namespace) -> None:
    from sandbox.images.manage import entry_of

    entry = entry_of(arguments.image)
    print_json({**_told(entry), "config": entry.said, "root": f"{entry.path}/root"})


def _told(entry: StoredImage) -> dict[str, object]:
    return {
        "names": entry.names,
        "digest": entry.digest,
        "architecture": entry.architecture,
        "bytes": entry.size,
        "created_at": entry.made,
        "source": entry.source,
    }


def _import(arguments: Namespace) -> None:
    from sandbox.images import manage
    from sandbox.images.names import plain_name, reference

    source = arguments.source
    if os.path.exists(os.path.expanduser(source)):
        if arguments.name is None:
            raise SandboxError("an image from a file needs a name: `--name NAME`")
        if reference(arguments.name) is None:
            plain_name(arguments.name)
        from sandbox.images.importing import import_path

        digest = import_path(os.path.expanduser(source), ref=arguments.ref, architecture=arguments.arch)
    else:
        found = reference(source)
        if found is None:
            raise SandboxError("{source} is neither a file nor a reference to a registry: host/path:tag", source=source)
        from sandbox.images.pull import pull
        from sandbox.service import configuration

        digest = pull(found, configuration({}).config, architecture=arguments.arch)
    if arguments.name is not None:
        manage.name(digest, arguments.name)
    print(digest)


def _export(arguments: Namespace) -> None:
    from sandbox.images.export import export
    from sandbox.images.manage import entry_of
    from sandbox.images.store import find, usual_name

    image = find(arguments.image)
    try:
        entry = entry_of(arguments.image)
        name = usual_name(arguments.image)
        print(export(image.root, entry.said, arguments.file, name=name, architecture=entry.architecture))
    finally:
        image.release()


def _name(arguments: Namespace) -> None:
    from sandbox.images import manage
    from sandbox.images.names import reference

    reference(arguments.name)
    if arguments.image == "host":
        manage.name_host(arguments.name)
    else:
        manage.name(manage.entry_of(arguments.image).digest, arguments.name)


def _build(arguments: Namespace) -> None:
    from sandbox.engines.machine.kernel import find_kernel
    from sandbox.images.build import build

    made = build(
        arguments.variant,
        architecture=arguments.arch,
        output=arguments.output,
        key=arguments.key,
        kernel=arguments.kernel,
        machine=find_kernel().everything() if arguments.kernel else (),
        version=arguments.version,
    )
    print(made)


def _rm(arguments: Namespace) -> None:
    from sandbox.images.manage import remove

    for one in arguments.image:
        remove(one)


def _prune(arguments: Namespace) -> None:
    from sandbox.images.manage import prune

    for one in prune():
        print(shown(one))


_ACTIONS = {
    "list": _list,
    "inspect": _inspect,
    "import": _import,
    "export": _export,
    "name": _name,
    "build": _build,
    "rm": _rm,
    "prune": _prune,
}
