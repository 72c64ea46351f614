"""One step of the engine, as its ``/debug/steps`` tells it: what the pictures are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

PREFILL = "prefill"
DECODE = "decode"


@dataclass(frozen=True, slots=True)
class ScheduledTokens:
    """``tokens`` tokens of one request, the first at position ``start``; all before are cached."""

    request_id: str
    kind: str
    start: int
    tokens: int
    choice: int = 0

    @property
    def lane(self) -> str:
        """The name of its line in a timeline: the request's id, and the choice after the first."""
        return self.request_id if self.choice == 0 else f"{self.request_id}#{self.choice}"

    @property
    def end(self) -> int:
        """One past the last position: how many keys the last of these tokens sees."""
        return self.start + self.tokens


@dataclass(frozen=True, slots=True)
class Step:
    """What ran together in one forward pass. Times are seconds on the engine's clock."""

    index: int
    t_start_s: float
    t_end_s: float
    scheduled: tuple[ScheduledTokens, ...]

    @property
    def rows(self) -> int:
        """Tokens in the step's one row: the height of its mask."""
        return sum(s.tokens for s in self.scheduled)

    @property
    def keys(self) -> int:
        """Keys of all its requests: the width of its mask."""
        return sum(s.end for s in self.scheduled)

    def tokens_of(self, kind: str) -> int:
        """Tokens of one kind, prefill or decode."""
        return sum(s.tokens for s in self.scheduled if s.kind == kind)

    @property
    def padded_rows(self) -> int:
        """Rows of the same step as a rectangle: every request as long as the longest."""
        return len(self.scheduled) * max((s.tokens for s in self.scheduled), default=0)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Read one step. Raises ValueError when it is not one."""
        try:
            scheduled = tuple(
                ScheduledTokens(
                    str(c["request_id"]),
                    str(c["kind"]),
                    int(c["start"]),
                    int(c["tokens"]),
                    int(c.get("choice", 0)),
                )
                for c in row["scheduled"]
            )
            return cls(int(row["index"]), float(row["t_start_s"]), float(row["t_end_s"]), scheduled)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a step record: {error!r}") from None


def most_telling(steps: Sequence[Step], *, max_rows: int = 72, max_keys: int = 260) -> Step | None:
    """The step whose mask shows most in the space of a picture; None when no step fits."""
    fitting = [s for s in steps if 0 < s.rows <= max_rows and s.keys <= max_keys]
    return max(fitting, key=_telling, default=None)


def _telling(step: Step) -> float:
    """Many requests of both kinds, a chunk with cached keys before it, none that fills it all."""
    decodes = sum(s.kind == DECODE for s in step.scheduled)
    prefills = [s for s in step.scheduled if s.kind == PREFILL]
    chunked = any(s.start > 0 and s.tokens > 2 for s in prefills)
    largest = max(s.tokens for s in step.scheduled) / step.rows
    return (
        min(decodes, 4)
        + 2.0 * min(len(prefills), 3)
        + 3.0 * chunked
        - 3.0 * largest
        - max(step.rows - 40, 0) / 20
        - max(step.keys - 160, 0) / 50
    )
