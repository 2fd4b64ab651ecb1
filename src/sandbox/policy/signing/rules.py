"""The `signing` section, compiled: addresses in one spelling, functions by selector."""

from __future__ import annotations

import re

from sandbox.errors import ConfigError
from sandbox.policy.signing.fields import MOST_CHAIN, MalformedField, address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sandbox.config.signing_section import SignedArgument, SignedContract, Signing, TypedDomain
    from sandbox.policy.signing.fields import Keccak

ANY = "*"
_SIGNATURE = re.compile(r"([A-Za-z_$][A-Za-z0-9_$]*)\((.*)\)", re.ASCII)
_TYPE = re.compile(r"[A-Za-z0-9()\[\],]+", re.ASCII)


class Function:
    """A function of a contract: its canonical signature, its parameters' types and names, and rules for them."""

    __slots__ = ("signature", "types", "names", "rules")

    def __init__(self, signature: str, types: list[str], names: list[str], rules: Mapping[int, SignedArgument]) -> None:
        self.signature = signature
        self.types = types
        self.names = names
        self.rules = rules


class Contract:
    """A destination's own rules. `any_call`: calls with any data are allowed."""

    __slots__ = ("limits", "functions", "any_call", "known")

    def __init__(self, limits: SignedContract) -> None:
        self.limits = limits
        self.functions: dict[bytes, Function] = {}  # what may be called
        self.known: dict[bytes, Function] = {}  # every function of the ABI, to show calls to people
        self.any_call = ANY in limits.functions


class Rules:
    """What may be signed. `abis` has the ABI of each contract whose file was read. Raises ConfigError."""

    def __init__(
        self, signing: Signing, keccak: Keccak, abis: Mapping[str, Iterable[Mapping[str, object]]] | None = None
    ) -> None:
        self.signing = signing
        self.keccak = keccak
        for chain in signing.chains:
            if not 0 < chain <= MOST_CHAIN:
                raise ConfigError("{chain} is not a chain id", chain=chain, path="signing.chains")
        self.chains = frozenset(signing.chains)
        self.any_address = ANY in signing.allowed_addresses
        self.allowed = self._addresses("allowed_addresses", [one for one in signing.allowed_addresses if one != ANY])
        self.denied = self._addresses("denied_addresses", signing.denied_addresses)
        self.contracts: dict[str, Contract] = {}
        for key, given in signing.contracts.items():
            place = self._address(f"contracts.{key}", key)
            if place in self.contracts:
                raise ConfigError("{name} is given twice", name=key, path=f"signing.contracts.{key}")
            self.contracts[place] = self._contract(key, given, list((abis or {}).get(key, ())))
        self.domains: list[tuple[str, TypedDomain]] = [
            (self._address("messages.typed", one.contract), one) for one in signing.messages.typed
        ]

    def _addresses(self, field: str, given: list[str]) -> frozenset[str]:
        return frozenset(self._address(field, one) for one in given)

    def _address(self, field: str, given: str) -> str:
        try:
            return address(field, given, self.keccak)
        except MalformedField as problem:
            raise ConfigError(
                "{given!r} {problem}", given=given, problem=problem.problem, path=f"signing.{field}"
            ) from None

    def _contract(self, key: str, given: SignedContract, abi: list[Mapping[str, object]]) -> Contract:
        contract = Contract(given)
        by_name: dict[str, list[Function]] = {}
        for entry in abi:
            if entry.get("type") == "function":
                named = _of_abi(entry, f"signing.contracts.{key}.abi")
                by_name.setdefault(str(entry["name"]), []).append(named)
                contract.known[self._selector(named)] = named
        for text, one in given.functions.items():
            if text == ANY:
                continue
            path = f"signing.contracts.{key}.functions"
            for function in by_name.get(text) or [_parsed(text, path)]:
                numbered = _numbered(function, one.arguments, path)
                made = Function(function.signature, function.types, function.names, numbered)
                if self._selector(made) in contract.functions:
                    raise ConfigError("{name} is given twice", name=made.signature, path=path)
                contract.functions[self._selector(made)] = made
        return contract

    def _selector(self, function: Function) -> bytes:
        return self.keccak(function.signature.encode())[:4]

    def function(self, destination: str, data: bytes) -> Function | None:
        """The function that `data` calls, if it is known, so that the caller can decode the arguments."""
        contract = self.contracts.get(destination)
        if contract is None or len(data) < 4:
            return None
        return contract.functions.get(data[:4]) or contract.known.get(data[:4])


def _numbered(function: Function, rules: Mapping[str, SignedArgument], path: str) -> dict[int, SignedArgument]:
    found: dict[int, SignedArgument] = {}
    for key, rule in rules.items():
        at = int(key) if key.isdecimal() else function.names.index(key) if key in function.names else -1
        if not 0 <= at < len(function.types):
            raise ConfigError("{function} has no argument {name!r}", function=function.signature, name=key, path=path)
        if not key.isdecimal() and function.names.count(key) > 1:
            raise ConfigError(
                "{function} has two arguments {name!r}: use their numbers, from 0",
                function=function.signature,
                name=key,
                path=path,
            )
        if at in found:
            raise ConfigError("{name} is given twice", name=f"{function.signature}: {key}", path=path)
        found[at] = rule
    return found


def _parsed(text: str, path: str) -> Function:
    """`transfer(address to, uint256 amount)`, with or without names."""
    match = _SIGNATURE.fullmatch(text.strip())
    parts = _split(match[2]) if match else []
    types, names = [], []
    for part in parts:
        words = part.split()
        if not 1 <= len(words) <= 2 or not _TYPE.fullmatch(words[0]):
            match = None
            break
        types.append({"uint": "uint256", "int": "int256"}.get(words[0], words[0]))
        names.append(words[1] if words[1:] else "")
    if match is None:
        raise ConfigError(
            "{text!r} is not a function, such as 'transfer(address to, uint256 amount)'", text=text, path=path
        )
    return Function(f"{match[1]}({','.join(types)})", types, names, {})


def _split(text: str) -> list[str]:
    """Splits at commas outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts] if text.strip() else []


def _of_abi(entry: Mapping[str, object], path: str) -> Function:
    try:
        inputs = entry["inputs"]
        assert isinstance(inputs, list)
        types = [_abi_type(one) for one in inputs]
        return Function(f"{entry['name']}({','.join(types)})", types, [str(one.get("name", "")) for one in inputs], {})
    except (KeyError, AssertionError, AttributeError, TypeError):
        raise ConfigError("the ABI has a function that cannot be read", path=path) from None


def _abi_type(one: Mapping[str, object]) -> str:
    kind = str(one["type"])
    if not kind.startswith("tuple"):
        return kind
    inner = one["components"]
    assert isinstance(inner, list)
    return f"({','.join(_abi_type(part) for part in inner)}){kind.removeprefix('tuple')}"
