"""The `StepRecord`: what one step computed, enough to draw its mask and the timeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reference_engine.scheduler import Chunk


class ChunkKind(StrEnum):
    """A decode computes the one token generated last; everything else is prefill."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class StepChunk:
    """``count`` tokens of one choice of one request, from absolute position ``start`` on."""

    request_id: str
    choice: int
    kind: ChunkKind
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step. Times are seconds on the engine process's monotonic clock (`time.monotonic`)."""

    index: int
    t_start_s: float
    t_end_s: float
    chunks: tuple[StepChunk, ...]
    preempted: tuple[str, ...]
    token_budget: int
    waiting: int
    pages_free: int
    pages_used: int
    pages_cached: int

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return sum(chunk.count for chunk in self.chunks)


def describe(chunk: Chunk) -> StepChunk:
    """What the record says of a chunk; called before the step is committed."""
    sequence = chunk.sequence
    kind = ChunkKind.DECODE if sequence.decodes else ChunkKind.PREFILL
    return StepChunk(sequence.request.request_id, sequence.choice, kind, chunk.start, chunk.count)
