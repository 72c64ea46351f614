"""Where a metric changed over many stored runs, by the ruptures library (PELT, least squares).

A gate compares two builds; a trend looks back over what was stored, where the machine was not the
same quiet one all the time. Values are taken as logarithms, so a change is a ratio, and the noise
is estimated from the differences of neighbours, which a step in the level hardly touches.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.gate.guarded_metric import GuardedMetric
from harness.results.document import ResultDocument

MIN_RUNS: Final = 8
_MIN_SEGMENT: Final = 3
_NORMAL_MAD: Final = 0.6745


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """Runs that may be lined up: one server, model, load and client machine."""

    server: str
    model: str
    workload_sha256: str
    machine: str


@dataclass(frozen=True, slots=True)
class Point:
    """One run's value of the metric."""

    run_id: str
    started_at: str
    version: str
    value: float


@dataclass(frozen=True, slots=True)
class Change:
    """The level changed with this run. ``slowdown`` is relative: 0.05 is 5% worse than before."""

    first: Point
    before: float
    after: float
    slowdown: float


def series(
    documents: Sequence[ResultDocument], metric: GuardedMetric
) -> dict[SeriesKey, list[Point]]:
    """The metric's values by series, oldest first; runs without it are left out."""
    found: dict[SeriesKey, list[Point]] = defaultdict(list)
    for document in sorted(documents, key=lambda d: d["started_at"]):
        value = metric.value(document["metrics"])
        if value is None or document["status"] != "complete":
            continue
        server = document["server"]
        shas = {m["workload_sha256"] for m in document["metrics"] if m["workload_sha256"]}
        key = SeriesKey(
            server["name"] or server["url"] or "",
            server["model"] or "",
            min(shas, default=""),
            f"{document['environment']['cpu_model']} x {document['environment']['cpu_count']}",
        )
        found[key].append(
            Point(document["run_id"], document["started_at"], server["version"] or "", value)
        )
    return dict(found)


def changes(points: Sequence[Point], metric: GuardedMetric) -> list[Change]:
    """The runs with which the level changed by more than the metric's delta, either way.

    Empty for fewer than eight runs: they show no trend.
    """
    import ruptures

    if len(points) < MIN_RUNS:
        return []
    logs = np.log([point.value for point in points])
    noise = _noise(logs)
    penalty = 3.0 * noise**2 * math.log(len(points)) + 1e-12
    ends = ruptures.Pelt(model="l2", min_size=_MIN_SEGMENT, jump=1).fit_predict(
        logs.reshape(-1, 1), penalty
    )
    starts = [0, *ends[:-1]]
    levels = [float(np.mean(logs[a:b])) for a, b in zip(starts, ends, strict=True)]
    found = [
        Change(points[start], math.exp(before), math.exp(after), _slowdown(before, after, metric))
        for start, before, after in zip(starts[1:], levels, levels[1:], strict=False)
    ]
    return [change for change in found if abs(change.slowdown) > metric.delta]


def _noise(logs: np.ndarray) -> float:
    """Standard deviation of one value, from the median absolute difference of neighbours."""
    differences = np.abs(np.diff(logs))
    return float(np.median(differences) / (_NORMAL_MAD * math.sqrt(2)))


def _slowdown(before: float, after: float, metric: GuardedMetric) -> float:
    return math.expm1(after - before if metric.larger_is_worse else before - after)
