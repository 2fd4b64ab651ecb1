"""EIP-712 data, read so that what is shown is what is hashed.

A verifier hashes only what the types declare. Data that the types do not declare, or a chain that the domain's type
does not declare, would be shown to a person and judged by the rules without being signed. Both are refused.
"""

from __future__ import annotations

import re

from sandbox.policy.signing.fields import MOST_CHAIN, MalformedField, address, data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sandbox.policy.signing.fields import Keccak

DOMAIN = "EIP712Domain"
# The domain's fields in the standard's order, and their only types.
DOMAIN_FIELDS = {
    "name": "string", "version": "string", "chainId": "uint256", "verifyingContract": "address", "salt": "bytes32",
}  # fmt: skip
MOST_TYPES, MOST_FIELDS, MOST_VALUES, DEEPEST, LONGEST = 32, 64, 2048, 8, 8192
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
# Names that some encoders treat as a basic type (`uint` as `uint256`): they would hash something other than is shown.
_RESERVED = re.compile(r"(u?int|u?fixed|bytes?|bool|address|string|function|tuple|enum|mapping)[0-9x]*", re.ASCII)
_ARRAY = re.compile(r"(.+)\[([1-9][0-9]{0,3})?\]", re.ASCII)
_NUMBER = re.compile(r"(u?)int(8|16|24|32|40|48|56|64|72|80|88|96|104|112|120|128|136|144|152|160|168|176|184|192|200"
                     r"|208|216|224|232|240|248|256)", re.ASCII)  # fmt: skip
_BYTES = re.compile(r"bytes([1-9]|[12][0-9]|3[0-2])", re.ASCII)


class TypedData:
    """One message with its types and its domain."""

    kind = "typed"
    cost = 0
    __slots__ = ("types", "primary", "domain", "message")

    def __init__(
        self, types: dict[str, list[dict[str, str]]], primary: str, domain: dict[str, Any], message: dict[str, Any]
    ) -> None:
        self.types = types
        self.primary = primary
        self.domain = domain
        self.message = message

    @property
    def destination(self) -> str:
        """The contract that the message is for."""
        return str(self.domain["verifyingContract"])

    @property
    def chain(self) -> int:
        return int(self.domain["chainId"])

    @classmethod
    def read(cls, given: Mapping[str, object], keccak: Keccak) -> TypedData:
        """Reads the parameter of `eth_signTypedData_v4`. Raises Malformed."""
        if set(given) != {"types", "primaryType", "domain", "message"}:
            raise MalformedField("typed data", "must have exactly types, primaryType, domain and message")
        types = _types(given["types"])
        primary = given["primaryType"]
        if not isinstance(primary, str) or primary not in types or primary == DOMAIN:
            raise MalformedField("primaryType", "must be one of the types, and not the domain's")
        reader = _Reader(types, keccak)
        used = reader.reached(primary)
        if extra := set(types) - used - {DOMAIN}:
            raise MalformedField("types", f"{min(extra)} is not used")
        domain = reader.struct(DOMAIN, given["domain"], "domain", 0)
        if not 0 < domain["chainId"] <= MOST_CHAIN:
            raise MalformedField("domain.chainId", f"must be from 1 to {MOST_CHAIN}")
        return cls(types, primary, domain, reader.struct(primary, given["message"], "message", 0))

    def plain(self) -> dict[str, object]:
        """The same in one spelling: numbers as decimal text, bytes as hexadecimal."""
        return {
            "types": self.types,
            "primaryType": self.primary,
            "domain": _spelled(self.domain),
            "message": _spelled(self.message),
        }


def _spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value) if type(value) is int else value


def _types(given: object) -> dict[str, list[dict[str, str]]]:
    if not isinstance(given, dict) or not 1 < len(given) <= MOST_TYPES:
        raise MalformedField("types", f"must be an object with the domain's type and 1 to {MOST_TYPES - 1} others")
    types = {}
    for name, fields in given.items():
        if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
            raise MalformedField("types", "a type's name must be an identifier, and not a basic type's")
        if not isinstance(fields, list) or len(fields) > MOST_FIELDS:
            raise MalformedField(f"types.{name}", f"must be a list of at most {MOST_FIELDS} fields")
        types[name] = [_field(name, one) for one in fields]
        if len({one["name"] for one in types[name]}) != len(fields):
            raise MalformedField(f"types.{name}", "has a field twice")
    _check_domain(types.get(DOMAIN))
    return types


def _field(owner: str, one: object) -> dict[str, str]:
    if not isinstance(one, dict) or set(one) != {"name", "type"}:
        raise MalformedField(f"types.{owner}", "each field must have exactly a name and a type")
    name, kind = one["name"], one["type"]
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(kind, str) or len(kind) > 100:
        raise MalformedField(f"types.{owner}", "a field's name must be an identifier, and its type a type")
    return {"name": name, "type": kind}


def _check_domain(fields: list[dict[str, str]] | None) -> None:
    """The domain's own type must be the standard's, with the chain and the contract: they bind the signature."""
    if fields is None:
        raise MalformedField("types", f"{DOMAIN} is missing")
    order = [name for name in DOMAIN_FIELDS if any(one["name"] == name for one in fields)]
    if [(one["name"], one["type"]) for one in fields] != [(name, DOMAIN_FIELDS[name]) for name in order]:
        raise MalformedField(f"types.{DOMAIN}", "must have the standard's fields, types and order")
    if "chainId" not in order or "verifyingContract" not in order:
        raise MalformedField(f"types.{DOMAIN}", "must bind chainId and verifyingContract")


def _atomic(kind: str) -> bool:
    return kind in ("bool", "address", "string", "bytes") or bool(_NUMBER.fullmatch(kind) or _BYTES.fullmatch(kind))


class _Reader:
    """Reads values as their types say."""

    def __init__(self, types: dict[str, list[dict[str, str]]], keccak: Keccak) -> None:
        self._types = types
        self._keccak = keccak
        self._count = 0

    def reached(self, primary: str) -> set[str]:
        """The types that `primary` uses, itself included. Raises Malformed for a type that is not defined."""
        found: set[str] = set()
        waiting = [primary]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            for one in self._types[name]:
                kind = one["type"]
                while array := _ARRAY.fullmatch(kind):
                    kind = array[1]
                if _atomic(kind):
                    continue
                if kind not in self._types or kind == DOMAIN:
                    raise MalformedField(f"types.{name}", "has a field of an unknown type")
                waiting.append(kind)
        return found

    def struct(self, kind: str, given: object, path: str, depth: int) -> dict[str, Any]:
        fields = {one["name"]: one["type"] for one in self._types[kind]}
        if not isinstance(given, dict) or set(given) != set(fields):
            raise MalformedField(path, f"must have exactly the fields of {kind}: what is not declared is not signed")
        return {name: self.value(inner, given[name], f"{path}.{name}", depth + 1) for name, inner in fields.items()}

    def value(self, kind: str, given: object, path: str, depth: int) -> Any:
        self._count += 1
        if self._count > MOST_VALUES or depth > DEEPEST:
            raise MalformedField(path[:200], "too many values, or too deep")
        if array := _ARRAY.fullmatch(kind):
            if not isinstance(given, list) or len(given) > MOST_VALUES or (array[2] and len(given) != int(array[2])):
                raise MalformedField(path, f"must be a list, as {kind} says")
            return [self.value(array[1], one, f"{path}[{at}]", depth + 1) for at, one in enumerate(given)]
        if kind in self._types:
            return self.struct(kind, given, path, depth)
        return self._basic(kind, given, path)

    def _basic(self, kind: str, given: object, path: str) -> Any:
        if kind == "bool":
            if type(given) is not bool:
                raise MalformedField(path, "must be true or false")
            return given
        if kind == "address":
            return address(path, given, self._keccak)
        if kind == "string":
            if not isinstance(given, str) or len(given) > LONGEST or not _encodable(given):
                raise MalformedField(path, f"must be text of at most {LONGEST} characters")
            return given
        if kind == "bytes":
            return data(path, given, LONGEST)
        if fixed := _BYTES.fullmatch(kind):
            found = data(path, given, 32)
            if len(found) != int(fixed[1]):
                raise MalformedField(path, f"must have {fixed[1]} bytes")
            return found
        return _whole(kind, given, path)


def _whole(kind: str, given: object, path: str) -> int:
    """A number: a JSON integer, decimal text, or 0x and hexadecimal digits, as libraries send it."""
    sized = _NUMBER.fullmatch(kind)
    assert sized is not None
    if type(given) is int:
        found = given
    elif isinstance(given, str) and re.fullmatch(r"0|-?[1-9][0-9]{0,77}", given, re.ASCII):
        found = int(given)
    elif isinstance(given, str) and re.fullmatch(r"0x(0|[1-9a-fA-F][0-9a-fA-F]{0,63})", given, re.ASCII):
        found = int(given, 16)
    else:
        raise MalformedField(path, "must be a whole number")
    bits = int(sized[2])
    least, most = (0, 2**bits - 1) if sized[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not least <= found <= most:
        raise MalformedField(path, f"does not fit into {kind}")
    return found


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
