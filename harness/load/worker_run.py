"""Measures with several workers: cuts the workload, runs the workers, puts the rows together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from harness.load.client_health import merged
from harness.load.measurement import Measurement
from harness.load.split import split
from harness.load.worker import WorkerReport, WorkerTask
from harness.metrics.request_row import from_row
from workloads.workload import Workload

RowTaker = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """How many workers, and where: processes here, or Ray actors on a cluster."""

    count: int = 1
    ray: bool = False
    ray_address: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``4``, ``ray:4`` or ``ray:4@ADDRESS``. Raises ValueError with one sentence."""
        found = re.fullmatch(r"(?:(ray):)?(\d+)(?:@(.+))?", text)
        if found is None or int(found[2]) < 1 or (found[3] and not found[1]):
            raise ValueError(f"workers {text!r}: expected a number, ray:N or ray:N@ADDRESS")
        return cls(int(found[2]), bool(found[1]), found[3])


ONE_WORKER: Final = WorkerPlan()
"""This process alone."""


def measure_with_workers(
    plan: WorkerPlan, task: WorkerTask, on_row: RowTaker | None = None
) -> Measurement:
    """Run ``task`` cut into ``plan.count`` shares. Raises WorkerLost, RayMissing.

    ``on_row`` is given each row: of processes here soon after its request ended, of Ray actors
    after the run.
    """
    parts = split(task.workload, plan.count)
    warmups = split(task.warmup, len(parts)) if task.warmup is not None else []
    tasks = [
        replace(task, workload=part, warmup=warmups[number] if number < len(warmups) else None)
        for number, part in enumerate(parts)
    ]
    return _together(task.workload, _run(plan, tasks, on_row))


def _run(
    plan: WorkerPlan, tasks: Sequence[WorkerTask], on_row: RowTaker | None
) -> list[WorkerReport]:
    if not plan.ray:
        from harness.load.local_workers import run_locally

        return run_locally(tasks, on_row)
    from harness.load.ray_workers import run_on_ray

    reports = run_on_ray(tasks, plan.ray_address)
    for row in (row for report in reports for row in report.rows):
        if on_row is not None:
            on_row(row)
    return reports


def _together(workload: Workload, reports: Sequence[WorkerReport]) -> Measurement:
    """The requests in the workload's order, whoever sent them."""
    requests = [from_row(row) for report in reports for row in report.rows]
    place = {request.key: number for number, request in enumerate(workload.requests)}
    requests.sort(key=lambda request: place[request.key])
    health = merged([report.health for report in reports])
    return Measurement(requests, health, any(report.interrupted for report in reports))
