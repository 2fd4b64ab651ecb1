"""The checks, in their order. The first that refuses decides.

    replay → chain → denied → allowed → value → selector → hourly → daily → spend → person

Two rules about this file. Every check depends only on the request, the rules and the history. A check can only refuse:
none can allow what a later one would refuse.
"""

from __future__ import annotations

from sandbox.errors import Message
from sandbox.policy.decision import Decision
from sandbox.policy.signing.requests import TextMessage, UnsignedTransaction
from sandbox.policy.signing.typed_data import TypedData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sandbox.config.signing_section import SignedArgument, Signing, SigningLimits, TypedDomain
    from sandbox.policy.signing.requests import Request
    from sandbox.policy.signing.rules import Rules


PERSON = Decision(True, "person", "it needs a person's approval")


class Count:
    """The number of signatures in the hour and in the day, and the most that the day's may have cost."""

    __slots__ = ("hour", "day", "spent")

    def __init__(self, hour: int = 0, day: int = 0, spent: int = 0) -> None:
        self.hour = hour
        self.day = day
        self.spent = spent


class History:
    """What was signed before: by all sandboxes, by this one, for this destination. `used`: the id was used before."""

    __slots__ = ("used", "everything", "sandbox", "destination")

    def __init__(
        self,
        used: bool = False,
        everything: Count | None = None,
        sandbox: Count | None = None,
        destination: Count | None = None,
    ) -> None:
        self.used = used
        self.everything = everything or Count()
        self.sandbox = sandbox or Count()
        self.destination = destination or Count()


class Asked:
    """A request, and the arguments of its call if they could be decoded."""

    __slots__ = ("request", "arguments")

    def __init__(self, request: Request, arguments: Sequence[object] | None = None) -> None:
        self.request = request
        self.arguments = arguments


class SigningDecision:
    """The decision, and whether a person must confirm it."""

    __slots__ = ("decision", "confirm")

    def __init__(self, decision: Decision, confirm: bool = False) -> None:
        self.decision = decision
        self.confirm = confirm


def judge(asked: Asked, rules: Rules, history: History) -> SigningDecision:
    """Whether the request may be signed."""
    for rule, check in CHECKS:
        refused = check(asked, rules, history)
        if refused is not None:
            return SigningDecision(Decision(False, rule, refused))
    if _needs_person(asked.request, rules):
        return SigningDecision(PERSON, confirm=True)
    return SigningDecision(Decision(True, "policy", "within the policy"))


def stateless(asked: Asked, rules: Rules) -> SigningDecision:
    """The same without a history: the checks that the holder of the key can repeat on its own."""
    return judge(asked, rules, History())


def _replay(asked: Asked, rules: Rules, history: History) -> Message | None:
    return Message("this request id was used before") if history.used else None


def _chain(asked: Asked, rules: Rules, history: History) -> Message | None:
    request = asked.request
    if isinstance(request, TextMessage) or request.chain in rules.chains:
        return None
    return Message("chain {chain} is not in signing.chains", chain=request.chain)


def _denied(asked: Asked, rules: Rules, history: History) -> Message | None:
    if asked.request.destination in rules.denied:
        return Message("{address} is in signing.denied_addresses", address=asked.request.destination)
    return None


def _allowed(asked: Asked, rules: Rules, history: History) -> Message | None:
    request = asked.request
    if isinstance(request, TextMessage):
        return Message("signing.messages.text is refuse") if rules.signing.messages.text == "refuse" else None
    if isinstance(request, TypedData):
        if _domain(request, rules) is None:
            return Message("no entry of signing.messages.typed is for {type} of this domain", type=request.primary)
        return None
    if rules.any_address or request.to in rules.allowed or request.to in rules.contracts:
        return None
    return Message("{address} is not in signing.allowed_addresses", address=request.to)


def _domain(request: TypedData, rules: Rules) -> TypedDomain | None:
    """The entry for this request; of several, one that wants a person."""
    found = None
    for contract, one in rules.domains:
        named = one.name is None or one.name == request.domain.get("name")
        if contract == request.destination and named and request.primary in one.types:
            found = one if found is None or one.confirm else found
    return found


def _value(asked: Asked, rules: Rules, history: History) -> Message | None:
    request = asked.request
    if not isinstance(request, UnsignedTransaction):
        return None
    for path, limits in _limits(request, rules):
        if limits.max_value is not None and request.value > limits.max_value:
            return Message("{value} wei is more than {limit}, {path}.max_value",
                       value=request.value, limit=limits.max_value, path=path)  # fmt: skip
    signing = rules.signing
    if request.gas > signing.max_gas:
        return Message("{gas} gas is more than {limit}, signing.max_gas", gas=request.gas, limit=signing.max_gas)
    if request.max_fee > signing.max_fee_per_gas:
        return Message("a fee of {fee} wei is more than {limit}, signing.max_fee_per_gas",
                   fee=request.max_fee, limit=signing.max_fee_per_gas)  # fmt: skip
    return None


def _limits(request: Request, rules: Rules) -> Iterator[tuple[str, Signing | SigningLimits]]:
    yield "signing", rules.signing
    yield "signing.per_sandbox", rules.signing.per_sandbox
    contract = rules.contracts.get(request.destination)
    if contract is not None:
        yield f"signing.contracts.{request.destination}", contract.limits


def _selector(asked: Asked, rules: Rules, history: History) -> Message | None:
    """Any data is a call of a function, whatever its length. It is refused without an entry for that function."""
    request = asked.request
    if not isinstance(request, UnsignedTransaction):
        return None
    contract = rules.contracts.get(request.to)
    if contract is not None and contract.any_call:
        return None
    if not request.data:
        # Plain ether runs the contract's receive function; an entry in allowed_addresses permits sending ether.
        if contract is None or rules.any_address or request.to in rules.allowed:
            return None
        return Message("{address} may be called, but not be sent plain ether", address=request.to)
    shown = f"0x{request.data[:4].hex()}"
    if contract is None:
        return Message("data for {address}, whose functions are not in signing.contracts", address=request.to)
    function = contract.functions.get(request.data[:4]) if len(request.data) >= 4 else None
    if function is None:
        return Message("signing.contracts does not allow the function {selector}", selector=shown)
    if asked.arguments is None:
        return Message("the arguments of {function} cannot be decoded exactly", function=function.signature)
    for at, rule in function.rules.items():
        value, name = asked.arguments[at], function.names[at] or str(at)
        if rule.allowed is not None and not _is_allowed(function.types[at], value, rule.allowed):
            return Message(
                "{function}: {name} is not one of the allowed values", function=function.signature, name=name
            )
        if (refused := _out_of_bounds(rule, value)) is not None:
            return Message("{function}: {name} {problem}", function=function.signature, name=name, problem=refused)
    return None


def _out_of_bounds(rule: SignedArgument, value: object) -> Message | None:
    """Why a number is too small or too large; None if it is neither. Anything but a number is out of bounds."""
    least = rule.min if rule.min is not None else 0 if rule.max is not None else None
    if least is not None and not (type(value) is int and value >= least):
        return Message("is less than {limit}", limit=least)
    if rule.max is not None and not (type(value) is int and value <= rule.max):
        return Message("is more than {limit}", limit=rule.max)
    return None


def _is_allowed(kind: str, value: object, allowed: Sequence[str]) -> bool:
    """Whether a decoded argument is one of the allowed values. Hexadecimal digits, true and false match in either case;
    text must match exactly."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}" in {one.lower() for one in allowed}
    if kind == "address" or isinstance(value, bool):
        return str(value).lower() in {one.lower() for one in allowed}
    return str(value) in allowed


def _hourly(asked: Asked, rules: Rules, history: History) -> Message | None:
    for path, limits, count in _counted(asked, rules, history):
        if limits.max_per_hour is not None and count.hour >= limits.max_per_hour:
            return Message("{limit} signatures in this hour, {path}.max_per_hour", limit=limits.max_per_hour, path=path)
    return None


def _daily(asked: Asked, rules: Rules, history: History) -> Message | None:
    for path, limits, count in _counted(asked, rules, history):
        if limits.max_per_day is not None and count.day >= limits.max_per_day:
            return Message("{limit} signatures in this day, {path}.max_per_day", limit=limits.max_per_day, path=path)
    return None


def _spend(asked: Asked, rules: Rules, history: History) -> Message | None:
    for path, limits, count in _counted(asked, rules, history):
        if limits.max_spend_per_day is not None and count.spent + asked.request.cost > limits.max_spend_per_day:
            return Message("this day's transactions would take more than {limit} wei, {path}.max_spend_per_day",
                       limit=limits.max_spend_per_day, path=path)  # fmt: skip
    return None


def _counted(asked: Asked, rules: Rules, history: History) -> Iterator[tuple[str, Signing | SigningLimits, Count]]:
    counts = (history.everything, history.sandbox, history.destination)
    for (path, limits), count in zip(_limits(asked.request, rules), counts, strict=False):
        yield path, limits, count


def _needs_person(request: Request, rules: Rules) -> bool:
    if isinstance(request, TextMessage):
        return rules.signing.messages.text != "allow" or request.text is None
    if isinstance(request, TypedData):
        domain = _domain(request, rules)
        return domain is None or domain.confirm
    return request.cost > rules.signing.confirm_above


CHECKS: tuple[tuple[str, Callable[[Asked, Rules, History], Message | None]], ...] = (
    ("replay", _replay),
    ("chain", _chain),
    ("denied", _denied),
    ("allowed", _allowed),
    ("value", _value),
    ("selector", _selector),
    ("hourly", _hourly),
    ("daily", _daily),
    ("spend", _spend),
)
