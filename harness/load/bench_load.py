"""What load to send: a recipe or a trace, and the workloads of the run and of its warm-up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from workloads.prompts import Prompts
from workloads.recipe import Recipe
from workloads.trace import Trace
from workloads.workload import Workload

_WARMUP_SEED = 1_000_003
_WARMUP_OPEN = 16


class Load(Protocol):
    """Something a workload can be built from."""

    @property
    def name(self) -> str:
        """A short name, for files."""

    @property
    def title(self) -> str:
        """One line, for people."""

    def workload(self, prompts: Prompts, seed: int) -> Workload:
        """The requests to measure."""

    def warmup(self, prompts: Prompts, seed: int) -> Workload:
        """Requests to send before, with other prompts, so that no prefix cache is warmed."""


@dataclass(frozen=True, slots=True)
class RecipeLoad:
    """Load from a recipe."""

    recipe: Recipe

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.recipe.name

    @property
    def title(self) -> str:
        """Name and title."""
        return f"{self.recipe.name}: {self.recipe.title}"

    def workload(self, prompts: Prompts, seed: int) -> Workload:
        """The recipe's workload."""
        return self.recipe.build(prompts, seed)

    def warmup(self, prompts: Prompts, seed: int) -> Workload:
        """As many requests as run at once, all together."""
        count = min(self.recipe.requests, self.recipe.concurrency or _WARMUP_OPEN)
        small = replace(self.recipe, requests=count, cancel_share=0.0, turns=None)
        return replace(small.build(prompts, seed + _WARMUP_SEED), concurrency=count)


@dataclass(frozen=True, slots=True)
class TraceLoad:
    """Load from a trace file."""

    trace: Trace
    path: Path

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.name.split(".")[0]

    @property
    def title(self) -> str:
        """Name and size."""
        return f"trace {self.path.name}: {len(self.trace.rows)} requests"

    def workload(self, prompts: Prompts, seed: int) -> Workload:
        """The trace's workload; every request is to use its whole output length."""
        return self.trace.workload(prompts, seed, {"temperature": 0.0, "ignore_eos": True})

    def warmup(self, prompts: Prompts, seed: int) -> Workload:
        """The first requests at once, without their shared blocks."""
        rows = tuple(replace(row, block_ids=()) for row in self.trace.rows[:_WARMUP_OPEN])
        first = replace(self.trace, rows=rows).workload(prompts, seed + _WARMUP_SEED)
        at_once = tuple(replace(request, due_s=0.0) for request in first.requests)
        return replace(first, requests=at_once)
