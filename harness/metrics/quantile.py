"""Quantiles of a sample, given only where the sample is large enough to bound them.

The estimate is the nearest rank: always a value that was really measured. The bounds are order
statistics, free of any assumption about the distribution (David and Nagaraja, Order Statistics,
section 7.1): the number of samples below the true q-quantile is binomial, so the k-th smallest
sample is a one-sided bound at the confidence that the binomial gives. A quantile has an upper bound
at all only if ``1 - q**n >= confidence``: 299 samples for p99 at 95%, 2,995 for p99.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.metrics.binomial import at_most

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile with its one-sided bounds, each at `CONFIDENCE`."""

    value: float
    low: float
    high: float


def samples_needed(q: float, confidence: float = CONFIDENCE) -> int:
    """The smallest sample that bounds the q-quantile on both sides, 0 < q < 1."""
    rarer = max(q, 1.0 - q)
    return math.ceil(math.log(1.0 - confidence) / math.log(rarer) - 1e-12)


def quantile(ordered: Sequence[float], q: float, confidence: float = CONFIDENCE) -> Quantile | None:
    """The q-quantile of samples in ascending order, or None where they are too few."""
    n = len(ordered)
    if n < samples_needed(q, confidence):
        return None
    value = ordered[max(1, math.ceil(q * n - 1e-9)) - 1]
    low_rank, high_rank = _bound_ranks(n, q, confidence)
    return Quantile(value, ordered[low_rank - 1], ordered[high_rank - 1])


def _bound_ranks(n: int, q: float, confidence: float) -> tuple[int, int]:
    """Ranks (from 1) of the largest lower and the smallest upper bound."""
    # With B ~ Binomial(n, q) samples below the quantile, sample k bounds it from above if
    # P(B < k) >= confidence, and from below if P(B >= k) >= confidence.
    high = _first(lambda k: at_most(k - 1, n, q) >= confidence, 1, n)
    low = _first(lambda k: 1.0 - at_most(k - 1, n, q) < confidence, 1, n + 1) - 1
    return max(low, 1), min(high, n)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first k in [low, high] from which the monotone predicate holds, by bisection."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
