"""Workers as Ray actors, for more load than one machine can send. Needs the ``ray`` extra.

Machines have clocks of their own, so each actor's offset is estimated before the start: it is asked
for its time many times, and the answer with the shortest round trip bounds the offset to half that
trip. All begin at the same moment within that bound, which is reported; the times in the rows count
from each worker's own start and need no correction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.cli.errors import UserError
from harness.client.clock import now
from harness.load.worker import Worker, WorkerReport, WorkerTask

PINGS = 15
START_DELAY_S = 0.5


class RayMissing(UserError):
    """Ray is not installed; the message says how to get it."""


def run_on_ray(tasks: Sequence[WorkerTask], address: str | None = None) -> list[WorkerReport]:
    """Run one actor for each task, on the cluster at ``address`` or on a local one of our own.

    Raises RayMissing.
    """
    try:
        import ray
    except ImportError:
        raise RayMissing("--workers ray:N needs Ray: pip install 'isobatch[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        ray.init(
            address=address,
            log_to_driver=False,
            include_dashboard=False,
            num_cpus=None if address else len(tasks),
        )
    try:
        actors = [ray.remote(Worker).options(num_cpus=1).remote(task) for task in tasks]
        ray.get([actor.prepare.remote() for actor in actors])
        offsets = [clock_offset(_clock(ray, actor)) for actor in actors]
        start_at_s = now() + START_DELAY_S
        reports: list[WorkerReport] = ray.get(
            [
                actor.run.remote(start_at_s + offset)
                for actor, (offset, _) in zip(actors, offsets, strict=True)
            ]
        )
        for report, (_, error_s) in zip(reports, offsets, strict=True):
            report.health.clock_error_s = error_s
        return reports
    finally:
        if ours:
            ray.shutdown()


def clock_offset(remote_now: Callable[[], float], pings: int = PINGS) -> tuple[float, float]:
    """How far the remote clock is ahead of ours, and the bound on the error of that, in seconds."""
    best: tuple[float, float] | None = None
    for _ in range(pings):
        before_s = now()
        there_s = remote_now()
        after_s = now()
        error_s = (after_s - before_s) / 2.0
        if best is None or error_s < best[1]:
            best = (there_s - (before_s + after_s) / 2.0, error_s)
    assert best is not None  # noqa: S101  (at least one ping)
    return best


def _clock(ray: Any, actor: Any) -> Callable[[], float]:
    return lambda: float(ray.get(actor.now.remote()))
