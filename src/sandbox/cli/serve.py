"""`sandbox serve`: the HTTP API. `sandbox serve token`: who may use it. See docs/server.md."""

from __future__ import annotations

import os

from sandbox.errors import ConfigError, InvalidArgument, SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any


PORT = 7777


def add(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option("action", nargs="*", metavar="token new|list|revoke", help=_("make, list or revoke tokens"))
    option("--host", default="127.0.0.1", help=_("address to listen on (default: 127.0.0.1)"))
    option("--port", type=int, default=PORT, help=_("port to listen on; 0 takes a free one (default: 7777)"))
    option("--unix", metavar="PATH", help=_("listen on a Unix socket instead"))
    option("--name", action="append", default=[], metavar="HOST", help=_("answer for this host name, too"))
    option("--cert", metavar="FILE", help=_("certificate chain for TLS"))
    option("--key", metavar="FILE", help=_("its private key"))
    option("--trust-proxy", metavar="ADDRESS", help=_("believe X-Forwarded-* headers from this address"))
    option("--config", metavar="FILE", help=_("read this configuration file"))
    option("--manager", metavar="FILE", help=_("configuration (SandboxManagerConfig) of the default managed sandbox"))
    option(
        "--root", action="append", default=[], metavar="DIR", help=_("clients may choose projects in this directory")
    )
    option("--pool", type=int, default=0, metavar="N", help=_("keep this many sandboxes ready: docs/pools.md"))
    option("--cluster", metavar="ADDRESS", help=_("show the nodes of this Ray cluster in the dashboard"))
    option("--rate", type=float, default=500.0, metavar="N", help=_("requests a second that each token may make"))
    option("--upload-limit", default="1g", metavar="SIZE", help=_("largest file that may be uploaded"))
    option("--most", type=int, metavar="N", help=_("run at most N sandboxes at a time; further requests wait"))
    option("--wait", default="30s", metavar="TIME", help=_("how long such requests wait before they are refused"))
    option("--token-file", metavar="FILE", help=_("further tokens, one a line: the token, its scopes, its name"))
    option("--new-token", action="store_true", help=_("print a token that may do everything and ends with the server"))
    option("--scope", action="append", default=[], metavar="SCOPES", help=_("token new: what it may do"))
    option("--sandbox", action="append", default=[], metavar="ID", help=_("token new: only for this sandbox"))
    option("--label", default="", metavar="TEXT", help=_("token new: a name for people"))
    option("--expires", metavar="TIME", help=_("token new: how long it is valid, such as 30d"))
    option("--json", action="store_true", help=_("token: print JSON"))


def run(arguments: Namespace) -> int:
    words = list(arguments.action)
    if words[:1] == ["token"]:
        from sandbox.cli.serve_token import run as run_token

        return run_token(words[1:], arguments)
    if words:
        raise InvalidArgument("unknown action {word!r}; `sandbox serve` or `sandbox serve token …`", word=words[0])
    return _serve(arguments)


def _serve(arguments: Namespace) -> int:
    from sandbox.cli.option_values import given
    from sandbox.cli.run import tell_ignored
    from sandbox.config.home import record_directory
    from sandbox.config.layers import resolve
    from sandbox.config.units import seconds, size
    from sandbox.sandboxes import Sandboxes

    try:
        from sandbox.server.run import check, serve
        from sandbox.server.settings import Settings
    except ImportError as problem:
        raise SandboxError(
            "the server needs {module}; install it with: pip install 'agent-sandbox[server]'", module=problem.name
        ) from problem
    config = resolve({}, project=os.getcwd(), config_file=arguments.config).users
    settings = Settings(
        record=record_directory(config),
        roots=[os.path.abspath(one) for one in arguments.root],
        host=arguments.host,
        port=arguments.port,
        names=arguments.name,
        unix_socket=os.path.abspath(arguments.unix) if arguments.unix else None,
        certificate=arguments.cert,
        key=arguments.key,
        trust_proxy=arguments.trust_proxy,
        rate=arguments.rate,
        upload_limit=given("--upload-limit", size, arguments.upload_limit),
        most=arguments.most,
        wait=given("--wait", seconds, arguments.wait),
        token_file=os.path.abspath(arguments.token_file) if arguments.token_file else None,
        manager=_manager(arguments.manager),
        pool=_pool(arguments.pool),
        cluster=_cluster(arguments.cluster),
    )
    check(settings)
    return serve(Sandboxes(config_file=arguments.config, tell=tell_ignored), settings, new_token=arguments.new_token)


def _pool(size: int) -> int:
    """Raises InvalidArgument."""
    from sandbox.pool.shelf import MOST

    if not 0 <= size <= MOST:
        raise InvalidArgument("size must be a number from 1 to {most}", most=MOST)
    return size


def _cluster(address: str | None) -> Any:
    """What describes the cluster, which is joined when somebody looks. Raises SandboxError without Ray."""
    if address is None:
        return None
    from sandbox.cluster.nodes import ray_module
    from sandbox.cluster.shown import ShownCluster

    ray_module()
    return ShownCluster(address).look


def _manager(file: str | None) -> dict[str, Any]:
    """The default managed sandbox's configuration. Raises ConfigError."""
    if file is None:
        return {}
    from sandbox.config.files import read

    source = read(file)
    if source is None:
        raise ConfigError("no such file", file=file)
    return dict(source.data)
