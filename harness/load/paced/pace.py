"""The `Pace`: when a paced answer sends what, and how it goes wrong on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Pace:
    """One answer's timetable, in seconds and tokens; a request asks for it in its ``paced`` field.

    The first chunk leaves ``ttft_s`` after the request was read, the others ``gap_s`` apart, each
    planned from the first so that lateness does not add up. ``tokens_per_chunk`` tokens share an
    event, ``chunks_per_write`` events share a write (a burst). Before chunk ``stall_at`` there is a
    pause of ``stall_s``; at chunk ``error_at`` an error event comes instead; from chunk ``hang_at``
    on nothing comes and the connection stays open; at chunk ``reset_at`` it is closed.
    """

    ttft_s: float = 0.05
    gap_s: float = 0.01
    tokens_per_chunk: int = 1
    chunks_per_write: int = 1
    stall_at: int | None = None
    stall_s: float = 0.0
    error_at: int | None = None
    hang_at: int | None = None
    reset_at: int | None = None

    @classmethod
    def from_json(cls, value: Any, default: Self) -> Self:
        """Read a request's ``paced`` field; what it leaves out is as in ``default``.

        Raises ValueError for an unknown or ill-typed field.
        """
        if value is None:
            return default
        if not isinstance(value, Mapping):
            raise ValueError("paced is not an object")
        known = {f.name: getattr(default, f.name) for f in fields(cls)}
        for name, given in value.items():
            if name not in known:
                raise ValueError(f"paced has no field {name!r}")
            if not isinstance(given, int | float) or isinstance(given, bool) or given < 0:
                raise ValueError(f"paced.{name} is not a number from 0")
            known[name] = given
        return cls(**known)

    def writes(self, tokens: int) -> Iterator[tuple[float, int, int]]:
        """``(seconds after the request, first chunk, chunks)`` of each write for ``tokens``."""
        chunks = -(-tokens // max(1, self.tokens_per_chunk))
        pause_s = 0.0
        for first in range(0, chunks, max(1, self.chunks_per_write)):
            if self.stall_at is not None and first >= self.stall_at:
                pause_s = self.stall_s
            count = min(max(1, self.chunks_per_write), chunks - first)
            yield self.ttft_s + first * self.gap_s + pause_s, first, count
