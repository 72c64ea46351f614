"""What the two generation endpoints have in common when they write an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reference_engine.server.generation import ChoiceDelta, GenerationPlan


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Whether the answer is streamed, and which token counts go with it."""

    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> StreamOptions:
        """Read the checked ``stream`` and ``stream_options`` fields."""
        options = values["stream_options"] or {}
        return cls(
            values["stream"],
            options.get("include_usage", False),
            options.get("continuous_usage_stats", False),
        )


class AnswerShape(Protocol):
    """How one request's answer is written."""

    @property
    def plan(self) -> GenerationPlan:
        """What is generated."""

    @property
    def options(self) -> StreamOptions:
        """Whether to stream."""

    @property
    def whole_object(self) -> str:
        """The ``object`` of an answer in one piece."""

    @property
    def chunk_object(self) -> str:
        """The ``object`` of a chunk."""

    def opening(self) -> list[dict[str, Any]]:
        """Choices of chunks that come before any token; the role, in chat."""

    def chunk_choice(self, delta: ChoiceDelta) -> dict[str, Any]:
        """The choice object of the chunk for one delta."""

    def whole_choice(self, deltas: Sequence[ChoiceDelta]) -> dict[str, Any]:
        """The choice object that all deltas of one choice add up to."""

    def whole_extra(self, choices: Sequence[Sequence[ChoiceDelta]]) -> dict[str, Any]:
        """Fields beside ``choices`` in an answer in one piece."""
