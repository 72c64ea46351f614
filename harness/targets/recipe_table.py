"""Reading a TOML table with one clear sentence for everything that can be wrong in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class RecipeInvalid(ValueError):
    """The recipe cannot be used; the message names the file and what to change in it."""


class RecipeTable:
    """A TOML table whose entries are read once each, typed; whatever was not read is a typo."""

    def __init__(self, entries: Mapping[str, Any], source: str) -> None:
        self._entries = dict(entries)
        self._source = source

    def text(self, key: str) -> str:
        """A string. Raises RecipeInvalid if it is missing or something else."""
        return str(self._take(key, str, "a string"))

    def number(self, key: str, default: float | None = None) -> float:
        """A number, not negative."""
        if key not in self._entries and default is not None:
            return default
        value = float(self._take(key, int | float, "a number"))
        if value < 0:
            raise self._invalid(key, "a number, not negative")
        return value

    def flag(self, key: str) -> bool:
        """true or false."""
        return bool(self._take(key, bool, "true or false"))

    def words(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of strings."""
        if key not in self._entries and default is not None:
            return default
        return self._strings(key, self._take(key, list, "a list of strings"))

    def steps(self, key: str) -> tuple[tuple[str, ...], ...]:
        """A list of commands, each a list of strings."""
        commands = self._take(key, list, "a list of commands")
        if not all(isinstance(command, list) and command for command in commands):
            raise self._invalid(key, "a list of commands, each a list of strings")
        return tuple(self._strings(key, command) for command in commands)

    def mapping(self, key: str) -> dict[str, str]:
        """A table of strings; empty if missing."""
        table = self._entries.pop(key, {})
        if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
            raise self._invalid(key, "a table of strings")
        return table

    def tables(self, key: str) -> Iterator[tuple[str, RecipeTable]]:
        """The named tables below; at least one."""
        table = self._take(key, dict, "a table of tables")
        if not table or not all(isinstance(inner, dict) for inner in table.values()):
            raise self._invalid(key, "a table with at least one table in it")
        for name, inner in table.items():
            yield name, RecipeTable(inner, f"{self._source} [{key}.{name}]")

    def refuse_unknown(self) -> None:
        """Raises RecipeInvalid for entries that nobody read."""
        if self._entries:
            raise RecipeInvalid(f"{self._source} has unknown entries: {', '.join(self._entries)}")

    def _take(self, key: str, kind: Any, meaning: str) -> Any:
        value = self._entries.pop(key, None)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._invalid(key, meaning)
        return value

    def _strings(self, key: str, values: list[Any]) -> tuple[str, ...]:
        if not all(isinstance(value, str) for value in values):
            raise self._invalid(key, "a list of strings")
        return tuple(values)

    def _invalid(self, key: str, meaning: str) -> RecipeInvalid:
        return RecipeInvalid(f"{self._source}: {key} must be {meaning}")
