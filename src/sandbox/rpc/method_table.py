"""The methods that JSON-RPC offers: those of `methods` and `commands`, and those about requests and the session."""

from __future__ import annotations

import signal as signals
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from sandbox.rpc import commands, errors, methods
from sandbox.rpc import messages as m
from sandbox.rpc.call import Call
from sandbox.rpc.errors import Fault
from sandbox.rpc.hooks import remote_hooks
from sandbox.rpc.lines import CONTENT_LIMIT

if TYPE_CHECKING:
    from sandbox.rpc.session import RpcSession
    from sandbox.sandbox import Sandbox

Answer = dict[str, Any] | None  # None: the method has answered already, or will
Run = Callable[["RpcSession", Call, Any], Answer]


class RpcMethod:
    """How a method's parameters are read, and what it does.

    `inline`: runs in the thread that reads requests, so it must not block. `unordered`: does not wait for the requests
    before it. `before_input`: takes effect before the command named by `request` gets any input that was sent later.
    """

    def __init__(
        self, params: Any, run: Run, *, inline: bool = False, unordered: bool = False, before_input: bool = False
    ) -> None:
        self.run = run
        self.inline = inline
        self.unordered = inline or unordered
        self.before_input = before_input
        self._decoder = msgspec.json.Decoder(params)

    def read(self, params: Raw) -> Any:
        """Decodes the parameters. Raises Fault when they are invalid."""
        try:
            return self._decoder.decode(b"{}" if bytes(memoryview(params)[:5]) == b"null" else params)
        except msgspec.ValidationError as problem:
            raise Fault(errors.INVALID_PARAMS, "invalid params: {problem}", problem=problem) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise Fault(errors.PARSE, "not a line of JSON: {problem}", problem=problem) from None


# -- the session


def _create(session: RpcSession, call: Call, config: dict[str, Any]) -> Answer:
    asked, gate = config.pop("hooks", None), config.pop("gate", None)
    hooks = None
    if asked is not None or gate is not None:
        hooks = remote_hooks({} if asked is None else asked, session.hooks.hook, gate)
    sandbox = session.current.create(config, hooks)
    sandbox.on_event(session.events.put)
    return methods.info(sandbox, m.Nothing())


def _restore(session: RpcSession, call: Call, asked: m.Restore) -> Answer:
    hooks = remote_hooks(asked.hooks, session.hooks.hook) if asked.hooks is not None else None
    sandbox = session.current.restore(asked.checkpoint, asked.config, hooks)
    sandbox.on_event(session.events.put)
    return methods.info(sandbox, m.Nothing())


def _close(session: RpcSession, call: Call, asked: m.Close) -> Answer:
    session.finish(call, asked.grace)
    return None


def _asks(session: RpcSession, call: Call, asked: m.Asks) -> Answer:
    sandbox = session.current.sandbox()
    if asked.watch:
        session.watch(sandbox)
    return {"asks": [dict(one) for one in sandbox.asks()]}


def _launcher(session: RpcSession, call: Call, asked: m.Nothing) -> Answer:
    from sandbox.rpc.launches import Launches

    sandbox = session.current.sandbox()
    answer = methods.launcher(sandbox, asked)
    sandbox._companion(Launches).told.add(session.events)
    return answer


def _pool_get(session: RpcSession, call: Call, asked: m.PoolGet) -> Answer:
    return session.current.pool.get(asked)


def _pool_close(session: RpcSession, call: Call, asked: m.Nothing) -> Answer:
    session.current.pool.close(everything=False)
    return {}


# -- other requests


def _input(session: RpcSession, call: Call, asked: m.Input) -> Answer:
    def answer(problem: Exception | None) -> None:
        if problem is None:
            call.reply({})
        else:
            call.fail(problem)

    command = session.call(asked.request)
    command.inputs.put(asked.data, asked.end, answer, command.before_input)
    return None


def _more(session: RpcSession, call: Call, asked: m.More) -> Answer:
    session.call(asked.request).credit.add(asked.bytes)
    return {}


def _cancel(session: RpcSession, call: Call, asked: m.Cancel) -> Answer:
    session.call(asked.request).cancel()
    return {}


def _resize(session: RpcSession, call: Call, asked: m.Resize) -> Answer:
    session.call(asked.request).process().resize(asked.rows, asked.cols)
    return {}


def _signal(session: RpcSession, call: Call, asked: m.Signal) -> Answer:
    session.call(asked.request).process().signal(_number(asked.signal))
    return {}


def _number(named: int | str) -> int:
    if isinstance(named, int):
        return named
    name = named.upper()
    try:
        return signals.Signals[name if name.startswith("SIG") else f"SIG{name}"]
    except KeyError:
        raise Fault(
            errors.INVALID_PARAMS, "no signal {name!r}; TERM, INT, HUP, KILL, … or a number", name=named
        ) from None


# -- the sandbox


def _plain(method: methods.Method) -> RpcMethod:
    """A method with one answer."""

    def run(session: RpcSession, call: Call, asked: Any) -> Answer:
        result = method.run(session.current.sandbox(), asked)
        if isinstance(result, methods.FileContent):
            with result:
                return _send_content(session, call, result)
        return result

    return RpcMethod(method.params, run)


def _send_content(session: RpcSession, call: Call, content: methods.FileContent) -> Answer:
    if content.length > CONTENT_LIMIT:  # more than the file may have
        content.length = min(content.length, max(0, content.size - content.offset))
    if content.length > CONTENT_LIMIT:
        raise Fault(
            errors.TOO_LARGE,
            "{path} has {size} bytes; one message carries {limit}: read it in pieces with offset and length",
            path=content.path,
            size=content.size,
            limit=CONTENT_LIMIT,
            data={"size": content.size, "limit": CONTENT_LIMIT},
        )
    with session.budget.hold(content.length):
        data = content.read()
        call.turn.done()  # a client that reads slowly must not delay other requests
        call.reply_content(data, {"size": content.size})
    return None


def _stream(params: Any, run: Callable[[Call, Sandbox, Any], dict[str, Any]]) -> RpcMethod:
    """A method with several answers."""
    return RpcMethod(params, lambda session, call, asked: run(call, session.current.sandbox(), asked))


METHODS: dict[str, RpcMethod] = {
    "create": RpcMethod(m.Anything, _create),
    "restore": RpcMethod(m.Restore, _restore),
    "exec": _stream(m.Exec, commands.exec),
    "exec_stream": _stream(m.ExecStream, commands.exec_stream),
    "exec_pipe": _stream(m.ExecPipe, commands.exec_pipe),
    "exec_tty": _stream(m.ExecTty, commands.exec_tty),
    "connect": _stream(m.Connect, commands.connect),
    "dial": _stream(m.Dial, commands.dial),
    "view": _stream(m.View, commands.view),
    "gate": _stream(m.Gate, commands.gate),
    "input": RpcMethod(m.Input, _input, inline=True),
    "more": RpcMethod(m.More, _more, inline=True),
    "resize": RpcMethod(m.Resize, _resize, before_input=True),
    "signal": RpcMethod(m.Signal, _signal, before_input=True),
    "cancel": RpcMethod(m.Cancel, _cancel, inline=True),
    **{name: _plain(method) for name, method in methods.METHODS.items()},
    "asks": RpcMethod(m.Asks, _asks),
    "launcher": RpcMethod(m.Nothing, _launcher),
    "pool_open": RpcMethod(m.PoolOpen, lambda session, call, asked: session.current.open_pool(asked)),
    "pool_get": RpcMethod(m.PoolGet, _pool_get, unordered=True),
    "pool_stats": RpcMethod(m.Nothing, lambda session, call, asked: session.current.pool.stats()),
    "pool_close": RpcMethod(m.Nothing, _pool_close),
    "close": RpcMethod(m.Close, _close, unordered=True),
}
