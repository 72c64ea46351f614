"""Whether near-ties flip more often than on the calm server: a sequential test of a count.

One tie flip is no defect. Many may be: a fault can move logits by less than the band and still
turn tokens. So every token that is judged is a trial, and Wald's sequential probability ratio test
(Ann. Math. Statist. 16, 1945) weighs the rate of the calm server against a rate four times as high.
The calm rate is itself an estimate, so its upper confidence bound (Clopper and Pearson, 1934)
stands for it; half of the false-alarm rate is spent on the bound, half on the test. Tokens after
the same prefix flip together, so each prefix counts once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

# For one check. Over a suite of 120 checks a healthy server is accused in 1.2% of runs at most.
FALSE_ALARM_RATE: Final = 1e-4
RATIO: Final = 4.0


@dataclass(frozen=True, slots=True)
class CalmRate:
    """Tie flips among the tokens judged while the server was calibrated."""

    flips: int
    tokens: int

    @property
    def bound(self) -> float:
        """The upper confidence bound of the rate, at half the false-alarm rate."""
        return _upper_bound(self.flips, self.tokens)

    def __str__(self) -> str:
        return f"{self.flips} of {self.tokens} tokens flipped when calm"


@cache
def _upper_bound(flips: int, tokens: int) -> float:
    from scipy.stats import beta

    if flips >= tokens:
        return 1.0
    return float(beta.ppf(1 - FALSE_ALARM_RATE / 2, flips + 1, tokens - flips))


@dataclass(frozen=True, slots=True)
class FlipTest:
    """The sequential test against one calm rate. Look at it as often as you like."""

    calm: CalmRate

    def log_ratio(self, flips: int, tokens: int) -> float:
        """How much likelier the count is at the high rate than at the calm one, in nat."""
        low = self.calm.bound
        high = min(RATIO * low, (1 + low) / 2)
        if low >= 1.0:
            return 0.0
        calm = tokens - flips
        return flips * math.log(high / low) + calm * math.log((1 - high) / (1 - low))

    def rejects(self, trials: Mapping[int, bool]) -> bool:
        """Whether the calm rate is refuted at the false-alarm rate."""
        flips = sum(trials.values())
        return self.log_ratio(flips, len(trials)) >= math.log(2 / FALSE_ALARM_RATE)

    def accusation(self, trials: Mapping[int, bool]) -> str:
        """The sentence for a report when it rejects."""
        return (
            f"near-ties flip more often than on the calm server: {self.counted(trials)} "
            f"(sequential probability ratio test, false-alarm rate {FALSE_ALARM_RATE:g} a check)"
        )

    def counted(self, trials: Mapping[int, bool]) -> str:
        """The counts beside the calm ones."""
        return f"{sum(trials.values())} of {len(trials)} tokens, {self.calm}"
