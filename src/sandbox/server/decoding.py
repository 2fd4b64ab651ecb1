"""What a client sends, as JSON. Whatever cannot be decoded is the client's mistake, never the server's."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from litestar import Request

from sandbox.server.refusal import Refusal

T = TypeVar("T")


def decode(data: bytes | str, type: type[T]) -> T:
    """`data` as a `type`. Raises msgspec.DecodeError, also for what is nested too deeply and for what is not UTF-8."""
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise msgspec.DecodeError("JSON is not UTF-8") from None


class JsonRequest(Request[Any, Any, Any]):
    """A request whose body is decoded for its route."""

    async def json(self) -> Any:
        try:
            value = await super().json()
        except (RecursionError, UnicodeDecodeError):
            raise Refusal(400, "invalid", "the body is nested too deeply, or is not UTF-8") from None
        self._strict(value)
        return value

    def _strict(self, value: Any) -> None:
        """Refuses what Litestar would convert: it takes the text "5" for the number 5 in bodies, too."""
        expected = self.route_handler.parsed_data_field
        if expected is None:
            return
        try:
            msgspec.convert(value, expected.annotation)
        except msgspec.ValidationError as problem:
            try:
                msgspec.convert(value, expected.annotation, strict=False)
            except msgspec.ValidationError:
                return  # wrong in any case: Litestar says so, and names the field
            field = str(problem).rpartition("`$")[2].strip("`.") or None
            raise Refusal(400, "invalid", str(problem), field=field) from None
