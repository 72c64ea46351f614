"""A request trace: arrivals, lengths and prefix structure of real traffic, and the workload of it.

A trace names no contents. Prompts are made up, but what the trace says of them holds: length, and
which blocks of which prompts were the same (``block_ids``, as in Mooncake's traces), so a prefix
cache sees the hits that it would have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from workloads.prompts import Prompts
from workloads.workload import Workload, WorkloadRequest

_FIRST_BLOCK = -1_000_000
"""Block contents are numbered down from here, clear of prompts (from 0 up) and shared prefixes."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request: when (seconds from the start), how long, and the ids of its prompt's blocks."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows in order of arrival, from 0 s. ``block_tokens`` is how many tokens a block id stands
    for."""

    name: str
    rows: tuple[TraceRow, ...]
    block_tokens: int = 512

    def head(self, count: int | None) -> Self:
        """The first ``count`` requests."""
        return self if count is None else replace(self, rows=self.rows[:count])

    def scaled(self, *, time: float = 1.0, length: float = 1.0) -> Self:
        """Stretched in time (2: half the rate) and in length (0.1: a tenth of all tokens).

        Blocks shrink with the prompts, so the share of tokens that a cache can reuse stays.
        """
        if time <= 0 or length <= 0:
            raise ValueError("a scale must be above 0")
        rows = tuple(
            replace(
                row,
                arrival_s=row.arrival_s * time,
                prompt_tokens=max(1, round(row.prompt_tokens * length)),
                output_tokens=max(1, round(row.output_tokens * length)),
            )
            for row in self.rows
        )
        return replace(self, rows=rows, block_tokens=max(1, round(self.block_tokens * length)))

    def workload(
        self, prompts: Prompts, seed: int, params: dict[str, Any] | None = None
    ) -> Workload:
        """The trace as a workload: the same for the same seed, bit for bit."""
        content = _Contents(prompts, seed, self.block_tokens)
        requests = []
        for number, row in enumerate(self.rows):
            prompt = content.prompt(number, row)
            requests.append(
                WorkloadRequest(
                    key=f"r{number}",
                    prompt_ids=prompt if isinstance(prompt, tuple) else None,
                    prompt_text=prompt if isinstance(prompt, str) else None,
                    params={"max_tokens": row.output_tokens, **(params or {})},
                    due_s=row.arrival_s,
                )
            )
        return Workload(tuple(requests), f"trace {self.name}", seed)

    def prefix_hit_share(self) -> float | None:
        """The share of prompt blocks that an infinite prefix cache finds; None without block ids.

        A block is found if it and every block before it in the prompt were seen in that order.
        """
        seen: set[int] = set()
        hits = blocks = 0
        for row in self.rows:
            prefix = 0
            found = True
            for block in row.block_ids:
                prefix = hash((prefix, block))
                found = found and prefix in seen
                hits += found
                seen.add(prefix)
            blocks += len(row.block_ids)
        return hits / blocks if blocks else None


class _Contents:
    def __init__(self, prompts: Prompts, seed: int, block_tokens: int) -> None:
        self._prompts = prompts
        self._seed = seed
        self._block_tokens = block_tokens
        self._block = lru_cache(maxsize=100_000)(self._make_block)

    def prompt(self, number: int, row: TraceRow) -> tuple[int, ...] | str:
        if not row.block_ids:
            return self._prompts.prompt(self._seed, number, row.prompt_tokens)
        blocks = [self._block(block_id) for block_id in row.block_ids]
        first = blocks[0]
        if isinstance(first, str):
            words = " ".join(str(b) for b in blocks).split()
            return " ".join(words[: row.prompt_tokens])
        head = self._prompts.prompt(self._seed, 0, 1)[:1] if self._has_head() else ()
        ids = [i for block in blocks for i in block[len(head) :]]
        return (*head, *ids)[: row.prompt_tokens]

    def _has_head(self) -> bool:
        return getattr(self._prompts, "bos_id", None) is not None

    def _make_block(self, block_id: int) -> tuple[int, ...] | str:
        # One longer where a first id is fixed: that one is cut off again.
        extra = int(self._has_head())
        return self._prompts.prompt(self._seed, _FIRST_BLOCK - block_id, self._block_tokens + extra)


def from_rows(name: str, rows: Sequence[TraceRow], block_tokens: int = 512) -> Trace:
    """A trace whose rows are put in order and moved to begin at 0 s. Raises ValueError if empty."""
    if not rows:
        raise ValueError(f"{name} holds no requests")
    ordered = sorted(rows, key=lambda row: row.arrival_s)
    start_s = ordered[0].arrival_s
    moved = tuple(replace(row, arrival_s=row.arrival_s - start_s) for row in ordered)
    return Trace(name, moved, block_tokens)
