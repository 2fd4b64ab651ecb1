"""The sandbox of a browser that has an image of its own (`browser.image`): it stands beside the one it belongs to.

It is an ordinary sandbox with the same engine, project, network rules, hooks and limits, in another image. It ends with
the one it belongs to, and with the process of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import ConfigError

if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.sandbox import Sandbox


def open_for(sandbox: Sandbox) -> Sandbox:
    """A new sandbox for the browser of `sandbox`. Raises what `Sandbox` raises; a wrong image is `browser.image`."""
    config = config_for(sandbox.config)
    config.engine = sandbox.engine
    try:
        return type(sandbox)(
            config, hooks=sandbox._hooks, command=("browser", "of", sandbox.id), resolve=sandbox._resolve
        )
    except ConfigError as problem:
        path = "browser.image" if problem.path == "image" else problem.path
        raise ConfigError(problem.problem, path=path) from None


def config_for(config: Config) -> Config:
    """That sandbox's configuration. What would clash with the first one's, or only serves programs there, is left out:
    published ports, the owner's logins and kept state, provided directories, a branch, signatures."""
    made = config.copy()
    made.image, made.browser.image = config.browser.image, None
    made.desktop.display = "sandbox"
    made.desktop.start = made.browser.auto_start = False
    made.signing.enabled = False
    made.network.publish = []
    made.filesystem.branch = None
    made.state.keep = []
    made.credentials = {}
    made.vfs.mounts = {}
    made.limits.lifetime = made.limits.idle_timeout = None
    return made
