"""Two stored results side by side. This is no gate, and the report says so.

Stored runs may come from different machines, hours or loads; between machines the same source
differs by a quarter. What can be said: which checks broke, and by how much the numbers differ
where both runs sent the same workload, the stored confidence bounds included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.gate.decision import Outcome
from harness.gate.guarded_metric import DEFAULT_METRICS, GuardedMetric
from harness.gate.report import broken_checks
from harness.results.document import MetricRow, ResultDocument


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric in both runs. ``slowdown`` is relative; ``beyond_bounds`` says the stored
    confidence bounds do not overlap (None where a run has none)."""

    metric: GuardedMetric
    base: float
    head: float
    slowdown: float
    beyond_bounds: bool | None

    @property
    def suspicious(self) -> bool:
        """Slower by more than delta and not within the bounds."""
        return self.slowdown > self.metric.delta and self.beyond_bounds is not False


@dataclass(frozen=True, slots=True)
class Comparison:
    """``caveats`` are the reasons why the numbers may not be comparable."""

    broken: tuple[str, ...]
    differences: tuple[Difference, ...]
    caveats: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """A broken check is a regression; slower numbers are never more than inconclusive."""
        if self.broken:
            return Outcome.REGRESSION
        if not self.differences or any(d.suspicious for d in self.differences):
            return Outcome.INCONCLUSIVE
        return Outcome.EQUIVALENT


def compare(
    base: ResultDocument,
    head: ResultDocument,
    metrics: Sequence[GuardedMetric] = DEFAULT_METRICS,
) -> Comparison:
    """Compare two documents."""
    found = (_difference(metric, base, head) for metric in metrics)
    return Comparison(
        broken_checks(base["verdicts"], head["verdicts"]),
        tuple(d for d in found if d is not None),
        tuple(_caveats(base, head)),
    )


def _difference(
    metric: GuardedMetric, base: ResultDocument, head: ResultDocument
) -> Difference | None:
    rows = [_row(metric, document["metrics"]) for document in (base, head)]
    if rows[0] is None or rows[1] is None:
        return None
    values = [metric.value([row]) for row in rows if row is not None]
    if values[0] is None or values[1] is None:
        return None
    ratio = values[1] / values[0] if metric.larger_is_worse else values[0] / values[1]
    return Difference(metric, values[0], values[1], ratio - 1, _apart(rows[0], rows[1]))


def _row(metric: GuardedMetric, rows: Sequence[MetricRow]) -> MetricRow | None:
    return next((row for row in rows if metric.value([row]) is not None), None)


def _apart(base: MetricRow, head: MetricRow) -> bool | None:
    if base["low"] is None or base["high"] is None or head["low"] is None or head["high"] is None:
        return None
    return head["low"] > base["high"] or base["low"] > head["high"]


def _caveats(base: ResultDocument, head: ResultDocument) -> Iterator[str]:
    digests = [{m["workload_sha256"] for m in d["metrics"]} - {None} for d in (base, head)]
    if digests[0] != digests[1]:
        yield "the runs sent different workloads"
    for name in ("platform", "cpu_model", "cpu_count", "memory_bytes", "python"):
        ours, theirs = base["environment"].get(name), head["environment"].get(name)
        if ours != theirs:
            yield f"the client's {name} differs: {ours} and {theirs}"
    for field in ("hardware", "dtype", "model"):
        if base["server"].get(field) != head["server"].get(field):
            yield f"the server's {field} differs"
    for label, document in (("base", base), ("head", head)):
        if document["client_health"]["valid"] is False:
            yield f"the {label} run is invalid: {'; '.join(document['client_health']['reasons'])}"
        if document["status"] != "complete":
            yield f"the {label} run did not end well: {document['status']}"
