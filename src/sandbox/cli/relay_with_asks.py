"""A relay that is interrupted by questions to the owner."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.cli.relay import StdioRelay
    from sandbox.guest.process import Process
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox


def asking(sandbox: Sandbox, relay: StdioRelay, process: Process) -> ExecResult:
    """Runs the relay; questions to the owner are asked on the terminal meanwhile, if the sandbox asks any."""
    if not (sandbox.config.network.ask or sandbox.config.filesystem.ask):
        return relay.run()
    from sandbox.cli.ask_terminal import on_terminal

    end = on_terminal(sandbox, relay, process)
    try:
        return relay.run()
    finally:
        end()
