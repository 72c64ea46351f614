"""One measured run: warm-up, the run itself, the watch over the client, the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from harness.load.client_health import ClientHealth, HealthWatch
from harness.metrics.slo import Slo
from harness.metrics.summary import metric_rows
from harness.results.document import MetricRow
from harness.targets.http import HttpTarget
from harness.transcript import RequestTranscript
from workloads.workload import Workload


@dataclass(slots=True)
class Measurement:
    """What a run gave. ``interrupted``: the user stopped it; the requests are those that ended."""

    requests: list[RequestTranscript]
    health: ClientHealth
    interrupted: bool = False

    def metrics(self, workload: Workload, objectives: tuple[Slo, ...] = ()) -> list[MetricRow]:
        """The metric rows."""
        return metric_rows(self.requests, objectives=objectives, workload_sha256=workload.sha256)


async def measure(
    target: HttpTarget,
    workload: Workload,
    *,
    warmup: Workload | None = None,
    on_end: Callable[[RequestTranscript], None] | None = None,
    on_settled: Callable[[RequestTranscript], None] | None = None,
    start_at_s: float | None = None,
) -> Measurement:
    """Run the warm-up, which is thrown away, and then the workload under watch.

    ``on_end`` is told of each request that ended; ``on_settled`` is given each once it is whole,
    in order of their ends. ``start_at_s`` is when to begin, on the monotonic clock; None: when all
    is prepared.
    Stopped by cancellation (Ctrl-C), it returns what had ended by then.
    """
    if warmup is not None:
        await target.run(warmup)
    ended: list[RequestTranscript] = []

    def note(request: RequestTranscript) -> None:
        ended.append(request)
        if on_end is not None:
            on_end(request)

    watch = HealthWatch()
    opened, reused = target.pool.opened, target.pool.reused
    interrupted = False
    async with watch:
        try:
            transcript = await target.run(
                workload,
                on_end=note,
                on_drained=watch.stop,
                on_settled=on_settled,
                start_at_s=start_at_s,
            )
            requests = list(transcript.requests.values())
        except asyncio.CancelledError:
            requests, interrupted = ended, True
    health = watch.judge(requests)
    health.connections_opened = target.pool.opened - opened
    health.connections_reused = target.pool.reused - reused
    return Measurement(requests, health, interrupted)
