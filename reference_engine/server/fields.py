"""The table language of request bodies: a field is a name, a kind, a default and a sentence.

A body is checked against a table of `Field`. Validation, the error sentences and the OpenAPI
document all come from the same table, so they cannot drift apart. Numbers follow JSON, not Python:
``true`` is no integer, ``2.0`` is one, and NaN does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Any, Protocol

from reference_engine.server.errors import ApiError

_SHOWN_CHARS = 60
# Values of any size and depth, shown in bounded time and space.
_brief = Repr()
_brief.maxlevel = 2
_brief.maxlist = _brief.maxdict = 4
_brief.maxstring = _brief.maxother = _SHOWN_CHARS


class Kind(Protocol):
    """What values a field takes."""

    def read(self, value: Any, name: str) -> Any:
        """The value as the server uses it. Raises ApiError naming the field."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the accepted values."""


def wrong(name: str, rule: str, value: Any) -> ApiError:
    """The error sentence of one field: what it must be, and what came instead."""
    shown = _brief.repr(value)
    return ApiError(f"{name} must be {rule}, not {shown}", param=name, code="invalid_value")


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number between two bounds, both included."""

    minimum: int
    maximum: int

    def read(self, value: Any, name: str) -> int:
        """The integer; ``2.0`` counts as one, ``true`` does not."""
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or not self.minimum <= value <= self.maximum:
            rule = f"a whole number from {self.minimum} to {self.maximum}"
            raise wrong(name, rule, value)
        return int(value)

    def schema(self) -> dict[str, Any]:
        """An integer with bounds."""
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number between two bounds; ``above`` excludes the lower one."""

    minimum: float
    maximum: float
    above: bool = False

    def read(self, value: Any, name: str) -> float:
        """The number as a float."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        inside = number and self.minimum <= value <= self.maximum
        if not inside or (self.above and value == self.minimum):
            low = f"above {self.minimum:g} and up" if self.above else f"from {self.minimum:g}"
            raise wrong(name, f"a number {low} to {self.maximum:g}", value)
        return float(value)

    def schema(self) -> dict[str, Any]:
        """A number with bounds."""
        low = "exclusiveMinimum" if self.above else "minimum"
        return {"type": "number", low: self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` or ``false``."""

    def read(self, value: Any, name: str) -> bool:
        """The boolean itself: no 0, no "false"."""
        if not isinstance(value, bool):
            raise wrong(name, "true or false", value)
        return value

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text:
    """A string with bounds on its length in characters."""

    max_chars: int
    min_chars: int = 0

    def read(self, value: Any, name: str) -> str:
        """The string itself."""
        if not isinstance(value, str):
            raise wrong(name, "a string", value)
        if not self.min_chars <= len(value) <= self.max_chars:
            rule = f"a string of {self.min_chars} to {self.max_chars} characters"
            raise wrong(name, rule, value)
        return value

    def schema(self) -> dict[str, Any]:
        """A string with bounds."""
        return {"type": "string", "minLength": self.min_chars, "maxLength": self.max_chars}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one kind with bounds on its length; ``or_single`` also takes a bare item."""

    item: Kind
    min_items: int
    max_items: int
    or_single: bool = False

    def read(self, value: Any, name: str) -> tuple[Any, ...]:
        """The items, checked one by one; the error names the index."""
        if self.or_single and not isinstance(value, list):
            return (self.item.read(value, name),)
        if not isinstance(value, list):
            raise wrong(name, "a list", value)
        if not self.min_items <= len(value) <= self.max_items:
            rule = f"a list of {self.min_items} to {self.max_items} items"
            raise wrong(name, rule, f"{len(value)} items")
        return tuple(self.item.read(v, f"{name}[{i}]") for i, v in enumerate(value))

    def schema(self) -> dict[str, Any]:
        """An array, or one item where that is allowed."""
        array = {
            "type": "array",
            "items": self.item.schema(),
            "minItems": self.min_items,
            "maxItems": self.max_items,
        }
        return {"anyOf": [self.item.schema(), array]} if self.or_single else array


@dataclass(frozen=True, slots=True)
class TokenBias:
    """A mapping from token ids, written as JSON keys, to a bias between -100 and 100."""

    max_items: int

    def read(self, value: Any, name: str) -> dict[int, float]:
        """Token id to bias."""
        if not isinstance(value, dict) or len(value) > self.max_items:
            raise wrong(name, f"an object with at most {self.max_items} token ids as keys", value)
        bias: dict[int, float] = {}
        for key, number in value.items():
            if not (key.isascii() and key.isdigit() and len(key) <= 10):
                raise wrong(name, "an object whose keys are token ids", key)
            bias[int(key)] = Number(-100, 100).read(number, f"{name}[{key}]")
        return bias

    def schema(self) -> dict[str, Any]:
        """An object of numbers."""
        return {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]{1,10}$"},
            "additionalProperties": Number(-100, 100).schema(),
            "maxProperties": self.max_items,
        }


@dataclass(frozen=True, slots=True)
class Only:
    """One of a few values: how a field of the API that is not offered is still accepted."""

    values: tuple[Any, ...]

    def read(self, value: Any, name: str) -> Any:
        """The value, which is one of ``values``."""
        if not any(value == v and type(value) is type(v) for v in self.values):
            offered = " or ".join(repr(v) for v in self.values)
            raise wrong(name, f"{offered} (nothing else is offered here)", value)
        return value

    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return {"enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class Nested:
    """An object with a table of its own."""

    fields: Sequence[Field]

    def read(self, value: Any, name: str) -> dict[str, Any]:
        """The object's fields with defaults filled in."""
        if not isinstance(value, dict):
            raise wrong(name, "an object", value)
        return read_table(self.fields, value, prefix=f"{name}.")

    def schema(self) -> dict[str, Any]:
        """An object schema."""
        return table_schema(self.fields)


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a table. A missing or null value is ``default``, unless ``required``."""

    name: str
    kind: Kind
    default: Any = None
    required: bool = False
    about: str = ""


def read_table(
    fields: Sequence[Field], body: Mapping[str, Any], *, prefix: str = ""
) -> dict[str, Any]:
    """Check ``body`` against the table and fill in defaults.

    Raises ApiError for the first wrong or missing field, and for a field the table does not have:
    a misspelt parameter must not be dropped in silence.
    """
    known = {field.name: field for field in fields}
    for name in body:
        if name not in known:
            raise ApiError(
                f"unrecognised field {(prefix + name)[:_SHOWN_CHARS]!r}",
                param=(prefix + name)[:_SHOWN_CHARS],
                code="unknown_field",
            )
    values: dict[str, Any] = {}
    for field in fields:
        value = body.get(field.name)
        if value is not None:
            values[field.name] = field.kind.read(value, prefix + field.name)
        elif field.required:
            name = prefix + field.name
            raise ApiError(f"{name} is missing", param=name, code="missing_field")
        else:
            values[field.name] = field.default
    return values


def table_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """The JSON Schema of a body that `read_table` accepts."""
    properties: dict[str, Any] = {}
    for field in fields:
        schema = field.kind.schema()
        if not field.required:
            schema = {"anyOf": [schema, {"type": "null"}]}
        if field.about:
            schema["description"] = field.about
        properties[field.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": [f.name for f in fields if f.required],
        "additionalProperties": False,
    }
