"""A `Sequence`: one choice of one request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from reference_engine.request import Request


class SequenceState(Enum):
    """Where a sequence is. A preempted sequence waits again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """The known tokens (prompt, then output), and how many of them have keys and values.

    ``computed`` counts the tokens whose keys and values are in the cache; the rest is work.
    ``block_tables``: its pages, one table for each page group. ``cached_tokens``: how many tokens
    the prefix cache held when the sequence was first admitted; None before.
    """

    request: Request
    choice: int
    arrival: int
    tokens: list[int]
    state: SequenceState = SequenceState.WAITING
    computed: int = 0
    block_tables: list[list[int]] = field(default_factory=list)
    cached_tokens: int | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """Service order: priority, then arrival, then choice. Smaller is served first."""
        return (self.request.priority, self.arrival, self.choice)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_ids)

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def finished(self) -> bool:
        """Whether it has ended and holds nothing."""
        return self.state is SequenceState.FINISHED

    @property
    def remaining(self) -> int:
        """Known tokens that still have to be computed."""
        return len(self.tokens) - self.computed

    @property
    def decodes(self) -> bool:
        """Whether the next step is a decode: everything but the last generated token is there."""
        return self.output_tokens > 0 and self.remaining == 1
