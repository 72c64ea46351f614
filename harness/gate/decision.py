"""From paired slowdowns to a decision.

Context: identical source once failed a gate by nine per cent, because the interval was taken over
the requests of one run and so left out how runs differ from each other. So the unit here is the
*pair*: base and head measured one after the other on one machine, and a pair gives one number, the
log of how many times worse the head was. The interval is Student's, over the pairs.

The rule, for a metric with a slowdown ``delta`` that matters:

- **regression** when the data speak for a slowdown above delta: one-sided test of "mean slowdown
  is at most delta", Holm over all guarded metrics, so the chance of any false regression is at
  most alpha even where every metric sits exactly at its delta;
- **equivalent** when the interval lies inside +-delta (two one-sided tests), **better** when it
  lies below +delta but reaches past -delta;
- **inconclusive** otherwise; and when the interval is wider than 2 delta no number of such pairs
  would do: the noise is too large for this delta, and the decision says so.

Equivalence must hold for every metric at once, so it needs no correction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

import numpy as np

from harness.gate.guarded_metric import GuardedMetric

ALPHA: Final = 0.05
MIN_PAIRS: Final = 5


class Outcome(StrEnum):
    """What the gate says of one metric, and of all together."""

    REGRESSION = "regression"
    EQUIVALENT = "equivalent"
    BETTER = "better"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class MetricDecision:
    """One metric decided. ``slowdown``, ``low`` and ``high`` are relative: 0.05 is 5% worse.

    ``low`` and ``high`` are the two ends of the 90% interval (95% on each side).
    ``pairs_needed`` is how many pairs of this noise would bring the interval inside +-delta around
    no change; None where the noise is unknown.
    """

    metric: GuardedMetric
    outcome: Outcome
    reason: str
    pairs: int
    slowdown: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    noise: float | None = None
    pairs_needed: int | None = None

    @property
    def too_noisy(self) -> bool:
        """Whether the interval is wider than the band it should fit in."""
        if self.low is None or self.high is None:
            return True
        return self.high - self.low > 2 * self.metric.delta


def decide(
    slowdowns: Mapping[GuardedMetric, Sequence[float]], alpha: float = ALPHA
) -> list[MetricDecision]:
    """Decide every metric. ``slowdowns`` are log ratios, one a pair, in any order."""
    estimates = {metric: _estimate(metric, values) for metric, values in slowdowns.items()}
    known = {m: e for m, e in estimates.items() if e is not None}
    worse = _holm({m: e.p_value for m, e in known.items()}, alpha, of=len(slowdowns))
    return [
        _decision(metric, estimates[metric], len(values), regressed=metric in worse)
        for metric, values in slowdowns.items()
    ]


def overall(decisions: Sequence[MetricDecision]) -> Outcome:
    """One word for all metrics: the worst news wins, and no news is inconclusive."""
    outcomes = {decision.outcome for decision in decisions}
    if Outcome.REGRESSION in outcomes:
        return Outcome.REGRESSION
    if not outcomes or Outcome.INCONCLUSIVE in outcomes:
        return Outcome.INCONCLUSIVE
    return Outcome.BETTER if Outcome.BETTER in outcomes else Outcome.EQUIVALENT


@dataclass(frozen=True, slots=True)
class _Estimate:
    mean: float
    half_width: float
    deviation: float
    p_value: float


def _estimate(metric: GuardedMetric, values: Sequence[float]) -> _Estimate | None:
    """Mean, one-sided 95% half width and the test's p value; None with too few pairs."""
    k = len(values)
    if k < MIN_PAIRS:
        return None
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    error = deviation / math.sqrt(k)
    half_width = _quantile(k) * error
    margin = mean - math.log1p(metric.delta)
    if error == 0:
        return _Estimate(mean, 0.0, 0.0, 0.0 if margin > 0 else 1.0)
    return _Estimate(mean, half_width, deviation, _tail(margin / error, k))


@cache
def _quantile(pairs: int) -> float:
    """Student's one-sided quantile at 1 - alpha for the mean of so many pairs."""
    from scipy.special import stdtrit

    return float(stdtrit(pairs - 1, 1 - ALPHA))


def _tail(t: float, pairs: int) -> float:
    """The chance of a Student's t at least this large."""
    from scipy.special import stdtr

    return float(stdtr(pairs - 1, -t))


def _holm(p_values: Mapping[GuardedMetric, float], alpha: float, of: int) -> set[GuardedMetric]:
    """The metrics whose hypothesis Holm's step-down procedure rejects, out of ``of`` tested."""
    rejected: set[GuardedMetric] = set()
    for rank, (metric, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p_value > alpha / (of - rank):
            break
        rejected.add(metric)
    return rejected


def _decision(
    metric: GuardedMetric, estimate: _Estimate | None, pairs: int, *, regressed: bool
) -> MetricDecision:
    if estimate is None:
        reason = f"{pairs} pairs have this metric, at least {MIN_PAIRS} are needed"
        return MetricDecision(metric, Outcome.INCONCLUSIVE, reason, pairs)
    low = math.expm1(estimate.mean - estimate.half_width)
    high = math.expm1(estimate.mean + estimate.half_width)
    needed = _pairs_needed(estimate.deviation, metric.delta)
    outcome, reason = _outcome(metric, low, high, needed, regressed=regressed)
    return MetricDecision(
        metric,
        outcome,
        reason,
        pairs,
        slowdown=math.expm1(estimate.mean),
        low=low,
        high=high,
        p_value=estimate.p_value,
        noise=estimate.deviation,
        pairs_needed=needed,
    )


def _outcome(
    metric: GuardedMetric, low: float, high: float, needed: int | None, *, regressed: bool
) -> tuple[Outcome, str]:
    delta = metric.delta
    if regressed:
        return Outcome.REGRESSION, f"slower by more than {delta:.0%}"
    if high < delta:
        if low > -delta:
            return Outcome.EQUIVALENT, f"within {delta:.0%} either way"
        return Outcome.BETTER, f"not slower by {delta:.0%}, and perhaps faster"
    if high - low > 2 * delta:
        pairs = "more" if needed is None else f"about {needed}"
        return Outcome.INCONCLUSIVE, f"too noisy for {delta:.0%}: {pairs} pairs would be needed"
    return Outcome.INCONCLUSIVE, f"the interval crosses {delta:.0%}"


def _pairs_needed(deviation: float, delta: float, most: int = 10_000) -> int | None:
    """Pairs for which the half width is at most half of delta, so that A/A usually passes."""
    k = MIN_PAIRS
    while k <= most:
        half_width = _quantile(k) * deviation / math.sqrt(k)
        if half_width <= math.log1p(delta) / 2:
            return k
        k = math.ceil(k * 1.1)
    return None
