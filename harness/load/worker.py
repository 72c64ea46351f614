"""One worker: its share of a workload, sent by a loop of its own.

The same class runs as a process on this machine and as a Ray actor on another. It is prepared
(connections, warm-up), then told when to begin on its own monotonic clock, and gives back rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from harness.client.clock import now
from harness.load.client_health import ClientHealth
from harness.load.measurement import measure
from harness.load.text_tokens import count_text_tokens
from harness.metrics.request_row import to_row
from harness.targets.http import HttpTarget
from harness.targets.wording import Wording
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
    tokenizer: Path | None = None
    wording: Wording = field(default_factory=Wording)


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
        if self._task.warmup is not None:
            uvloop.run(_warm_up(self._task, self._task.warmup))

    def run(self, start_at_s: float) -> WorkerReport:
        """Begin at ``start_at_s`` on this worker's clock and return when all have ended."""
        return uvloop.run(_measure(self._task, start_at_s))


# Functions, not methods: Ray takes a class with coroutine methods for an asynchronous actor and
# runs all of it inside a loop of its own.


async def _warm_up(task: WorkerTask, warmup: Workload) -> None:
    target = _target(task)
    await target.run(warmup)
    await target.close()


async def _measure(task: WorkerTask, start_at_s: float) -> WorkerReport:
    target = _target(task)
    measured = await measure(target, task.workload, start_at_s=start_at_s)
    await target.close()
    if task.tokenizer is not None:
        count_text_tokens(measured.requests, task.tokenizer)
    rows = [to_row(request) for request in measured.requests]
    return WorkerReport(rows, measured.health, measured.interrupted)


def _target(task: WorkerTask) -> HttpTarget:
    target = HttpTarget(
        task.url,
        model=task.model,
        api_key=task.api_key,
        headers=task.headers,
        extra_params=task.extra_params,
        keep_raw=False,
    )
    target.wording = task.wording
    return target
