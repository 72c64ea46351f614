"""The public bugs of continuous-batching engines by root cause, and which checks answer to them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from harness.checks.registry import Check


@dataclass(frozen=True, slots=True)
class RootCause:
    """A group of bugs with one root cause; ``bugs`` are issue or pull-request ids."""

    title: str
    bugs: tuple[str, ...]

    def answered_by(self, checks: Sequence[Check]) -> list[Check]:
        """The checks that answer to at least one of its bugs."""
        return [c for c in checks if not set(self.bugs).isdisjoint(c.answers)]


@cache
def root_causes() -> tuple[RootCause, ...]:
    """The catalogue, in its own order."""
    text = resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8")
    return tuple(
        RootCause(group["title"], tuple(group["bugs"])) for group in tomllib.loads(text)["group"]
    )
