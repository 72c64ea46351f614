"""What a gate concludes: correctness first, then the paired decision, then one exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.gate.decision import MetricDecision, Outcome, decide, overall
from harness.gate.guarded_metric import GuardedMetric
from harness.gate.paired_run import Pair
from harness.results.document import GateSection, VerdictRow

_PASSES = frozenset({"pass", "tie-flips"})
_FAILS = frozenset({"fail", "error"})


@dataclass(frozen=True, slots=True)
class GateReport:
    """The decision and all it stands on. ``paired`` is False for stored results: no gate."""

    outcome: Outcome
    reasons: tuple[str, ...]
    decisions: tuple[MetricDecision, ...] = ()
    broken: tuple[str, ...] = ()
    pairs: int = 0
    paired: bool = True

    def to_json(self) -> GateSection:
        """The part that a result document holds."""
        return {
            "outcome": self.outcome.value,
            "paired": self.paired,
            "pairs": self.pairs,
            "reasons": list(self.reasons),
            "broken_checks": list(self.broken),
            "metrics": [
                {
                    "id": d.metric.id,
                    "statistic": d.metric.statistic,
                    "delta": d.metric.delta,
                    "outcome": d.outcome.value,
                    "reason": d.reason,
                    "pairs": d.pairs,
                    "slowdown": d.slowdown,
                    "low": d.low,
                    "high": d.high,
                    "p_value": d.p_value,
                    "noise": d.noise,
                    "pairs_needed": d.pairs_needed,
                }
                for d in self.decisions
            ],
        }


def broken_checks(base: Sequence[VerdictRow], head: Sequence[VerdictRow]) -> tuple[str, ...]:
    """Checks that pass on the base and fail on the head. No statistics: one is enough."""
    passed = {row["check_id"] for row in base if row["verdict"] in _PASSES}
    return tuple(
        row["check_id"] for row in head if row["verdict"] in _FAILS and row["check_id"] in passed
    )


def conclude(
    pairs: Sequence[Pair], metrics: Sequence[GuardedMetric], broken: tuple[str, ...] = ()
) -> GateReport:
    """The report of a paired run."""
    slowdowns = {
        metric: [s for pair in pairs if (s := pair.slowdown(metric)) is not None]
        for metric in metrics
    }
    decisions = tuple(decide(slowdowns))
    outcome, reasons = overall(decisions), []
    base_failed = sum(pair.base.failed for pair in pairs)
    head_failed = sum(pair.head.failed for pair in pairs)
    invalid = [r for pair in pairs for side in (pair.base, pair.head) for r in side.invalid]
    if invalid and outcome is not Outcome.REGRESSION:
        outcome = Outcome.INCONCLUSIVE
        reasons.append(f"the client could not keep up: {invalid[0]}")
    if base_failed:
        outcome = Outcome.INCONCLUSIVE
        reasons.append(f"{base_failed} requests failed on the base: there is nothing to hold to")
    elif head_failed:
        outcome = Outcome.REGRESSION
        reasons.append(f"{head_failed} requests failed on the head and none on the base")
    if broken:
        outcome = Outcome.REGRESSION
        reasons.append(f"checks that passed on the base fail on the head: {', '.join(broken)}")
    reasons += [f"{d.metric.name}: {d.reason}" for d in decisions]
    return GateReport(outcome, tuple(reasons), decisions, broken, len(pairs))


@dataclass(slots=True)
class NoiseReport:
    """What an A/A run says about gating on this machine with so many pairs."""

    report: GateReport
    too_noisy: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, report: GateReport) -> NoiseReport:
        """Name the metrics whose interval does not fit into its band."""
        return cls(report, [d.metric.name for d in report.decisions if d.too_noisy])

    @property
    def false_alarm(self) -> bool:
        """Whether identical sides were told apart."""
        return self.report.outcome is Outcome.REGRESSION
