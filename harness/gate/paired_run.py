"""Paired measurement: base and head in turn, ABBA, every pair on the same workload.

Two servers stand ready and one at a time is loaded. The order within a pair alternates, so what
drifts in the machine falls on both sides alike. Every pair has a workload of its own: the same for
both sides, and never the one of an earlier pair, whose prompts a prefix cache would remember.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from harness.gate.guarded_metric import GuardedMetric
from harness.load.bench_run import prompts_for
from harness.load.measurement import measure
from harness.load.probe_prompts import spelling_for
from harness.results.document import MetricRow
from harness.targets.http import HttpTarget
from harness.targets.wording import Wording, find_wording
from harness.transcript import Ending
from workloads.recipe import Recipe
from workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Replicate:
    """One measured run of one side."""

    rows: list[MetricRow]
    failed: int
    invalid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Base and head on one workload; ``base_first`` is the order they were measured in."""

    number: int
    base_first: bool
    base: Replicate
    head: Replicate

    def slowdown(self, metric: GuardedMetric) -> float | None:
        """Log of how many times worse the head was; None where either side has no value."""
        base, head = metric.value(self.base.rows), metric.value(self.head.rows)
        return None if base is None or head is None else metric.slowdown(base, head)


Measure = Callable[[str, Workload], Awaitable[Replicate]]


@dataclass(slots=True)
class PairedRun:
    """``pairs`` pairs of ``recipe`` against two URLs.

    ``wording`` is how the load is put to both sides alike; `run` finds it.
    """

    base_url: str
    head_url: str
    recipe: Recipe
    pairs: int
    seed: int = 0
    model: str | None = None
    done: list[Pair] = field(default_factory=list)
    wording: Wording = field(default_factory=Wording)

    async def run(
        self,
        on_pair: Callable[[Pair], None] = lambda _pair: None,
        on_wording: Callable[[Wording], None] = lambda _wording: None,
    ) -> list[Pair]:
        """Ask both sides for their wording, warm them up, measure. Raises TargetUnusable."""
        warmup = self.recipe.resized(requests=self.recipe.concurrency or 8, concurrency=None)
        sides = [await self._find_wording(url) for url in (self.base_url, self.head_url)]
        self.wording = sides[0].joined(sides[1])
        on_wording(self.wording)
        for url in (self.base_url, self.head_url):
            await self._measure(url, warmup, self.seed + 1_000_003)
        for number in range(self.pairs):
            base_first = number % 2 == 0
            order = (self.base_url, self.head_url) if base_first else (self.head_url, self.base_url)
            first, second = [await self._measure(u, self.recipe, self.seed + number) for u in order]
            base, head = (first, second) if base_first else (second, first)
            self.done.append(Pair(number, base_first, base, head))
            on_pair(self.done[-1])
        return self.done

    async def _find_wording(self, url: str) -> Wording:
        """How this side wants requests like the load's, asked with one that is not measured."""
        target = HttpTarget(url, model=self.model, keep_raw=False)
        try:
            await target.discover()
            model = target.model or ""
            like = self.recipe.build(prompts_for(model, "auto"), self.seed + 1_000_003)
            return await find_wording(target, like.requests[0], spelling_for(model, "auto"))
        finally:
            await target.close()

    async def _measure(self, url: str, recipe: Recipe, seed: int) -> Replicate:
        target = HttpTarget(url, model=self.model, keep_raw=False)
        target.wording = self.wording
        try:
            await target.discover()
            workload = recipe.build(prompts_for(target.model or "", "auto"), seed)
            measured = await measure(target, workload)
        finally:
            await target.close()
        if measured.interrupted:
            raise asyncio.CancelledError  # half a run is no replicate: the cancellation goes on
        failed = sum(r.ending not in (Ending.COMPLETE, Ending.CANCELLED) for r in measured.requests)
        invalid = () if measured.health.valid else tuple(measured.health.reasons)
        return Replicate(measured.metrics(workload), failed, invalid)
