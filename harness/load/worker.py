"""One worker: its share of a workload, sent by a loop of its own.

The same class runs as a process on this machine and as a Ray actor on another. It is prepared
(connections, warm-up), then told when to begin on its own monotonic clock, and gives back rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.client.clock import now
from harness.load.client_health import ClientHealth
from harness.load.measurement import measure
from harness.metrics.request_row import to_row
from harness.targets.http import HttpTarget
from workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a worker has to do: a server to talk to and its share of the requests."""

    url: str
    model: str
    workload: Workload
    warmup: Workload | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class WorkerReport:
    """Raw rows with times from the common start, and how the worker fared."""

    rows: list[dict[str, Any]]
    health: ClientHealth
    interrupted: bool = False


class Worker:
    """Runs one task. `now` tells its clock, so that starts can be agreed on across machines."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task

    def now(self) -> float:
        """Seconds on this worker's monotonic clock."""
        return now()

    def prepare(self) -> None:
        """Send the warm-up, on a loop that ends with it."""
        import uvloop

        if self._task.warmup is not None:
            uvloop.run(self._warm_up())

    def run(self, start_at_s: float) -> WorkerReport:
        """Begin at ``start_at_s`` on this worker's clock and return when all have ended."""
        import uvloop

        return uvloop.run(self._measure(start_at_s))

    async def _warm_up(self) -> None:
        target = self._target()
        if self._task.warmup is not None:
            await target.run(self._task.warmup)
        await target.close()

    async def _measure(self, start_at_s: float) -> WorkerReport:
        target = self._target()
        measured = await measure(target, self._task.workload, start_at_s=start_at_s)
        await target.close()
        rows = [to_row(request) for request in measured.requests]
        return WorkerReport(rows, measured.health, measured.interrupted)

    def _target(self) -> HttpTarget:
        task = self._task
        return HttpTarget(
            task.url,
            model=task.model,
            api_key=task.api_key,
            headers=task.headers,
            extra_params=task.extra_params,
            keep_raw=False,
        )
