"""One worker: its share of a workload, sent by a loop of its own.

The same class runs as a process on this machine and as a Ray actor on another. It is prepared
(connections, warm-up), then told when to begin on its own monotonic clock, and gives rows: one by
one as requests end where somebody takes them, else all at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from harness.client.clock import now
from harness.load.client_health import ClientHealth
from harness.load.measurement import Measurement, measure
from harness.load.text_tokens import count_text_tokens, load_tokenizer
from harness.metrics.request_row import to_row
from harness.targets.http import HttpTarget
from harness.targets.wording import Wording
from harness.transcript import RequestTranscript
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
    """Raw rows with times from the common start, in order of ends, and how the worker fared."""

    rows: list[dict[str, Any]]
    health: ClientHealth
    interrupted: bool = False


class Worker:
    """Runs one task. `now` tells its clock, so that starts can be agreed on across machines."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self._tokenizer: Any = None

    def now(self) -> float:
        """Seconds on this worker's monotonic clock."""
        return now()

    def prepare(self) -> None:
        """Load what is needed and send the warm-up, on a loop that ends with it."""
        if self._task.tokenizer is not None:
            self._tokenizer = load_tokenizer(self._task.tokenizer)
        if self._task.warmup is not None:
            uvloop.run(_warm_up(self._task, self._task.warmup))

    def run(
        self, start_at_s: float, on_row: Callable[[dict[str, Any]], None] | None = None
    ) -> WorkerReport:
        """Begin at ``start_at_s`` on this worker's clock and return when all have ended.

        ``on_row`` is given each row soon after its request ended; the report is then without rows.
        """
        rows: list[dict[str, Any]] = []
        give = rows.append if on_row is None else on_row

        def settled(request: RequestTranscript) -> None:
            if self._tokenizer is not None:
                count_text_tokens([request], self._tokenizer)
            give(to_row(request))

        measured = uvloop.run(_measure(self._task, start_at_s, settled))
        return WorkerReport(rows, measured.health, measured.interrupted)


# Functions, not methods: Ray takes a class with coroutine methods for an asynchronous actor and
# runs all of it inside a loop of its own.


async def _warm_up(task: WorkerTask, warmup: Workload) -> None:
    target = _target(task)
    await target.run(warmup)
    await target.close()


async def _measure(
    task: WorkerTask, start_at_s: float, on_settled: Callable[[RequestTranscript], None]
) -> Measurement:
    target = _target(task)
    measured = await measure(target, task.workload, on_settled=on_settled, start_at_s=start_at_s)
    await target.close()
    return measured


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
