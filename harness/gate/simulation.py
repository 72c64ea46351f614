"""How often the rule is wrong, and how often it sees what it should: counted, not argued.

Synthetic pairs: each side of a pair has its own noise, both share the drift of the machine at that
moment, and now and then one side meets a neighbour that takes the processor away for a while. The
true slowdown is put on the head. The rule of `decision` then decides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.gate.decision import Outcome, decide, overall
from harness.gate.guarded_metric import DEFAULT_METRICS, GuardedMetric


@dataclass(frozen=True, slots=True)
class Noise:
    """Of one measurement, in log units: its own spread, and rare spikes that only slow down."""

    spread: float
    spike_share: float = 0.0
    spike_size: float = 0.0

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Log deviations, [gates, pairs]."""
        spikes = (rng.random(shape) < self.spike_share) * rng.exponential(
            self.spike_size or 1.0, shape
        )
        return rng.normal(0.0, self.spread, shape) + spikes * bool(self.spike_size)


NOISES: Final[Mapping[str, Noise]] = {
    "quiet: 1% of its own": Noise(spread=0.01),
    "rough: 2%, and a spike of a fifth in one of twenty": Noise(0.02, 0.05, 0.2),
}


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the simulated gates that ended in each outcome."""

    gates: int
    shares: dict[Outcome, float]

    def __getitem__(self, outcome: Outcome) -> float:
        return self.shares.get(outcome, 0.0)


def simulate(
    *,
    slowdown: float,
    noise: Noise,
    pairs: int,
    gates: int,
    seed: int,
    metrics: tuple[GuardedMetric, ...] = DEFAULT_METRICS,
) -> Rates:
    """Run ``gates`` gates of ``pairs`` pairs each, every metric slowed down by ``slowdown``."""
    rng = np.random.default_rng(seed)
    shape = (gates, pairs)
    drawn = {
        metric: math.log1p(slowdown) + noise.draw(rng, shape) - noise.draw(rng, shape)
        for metric in metrics
    }
    counts = Counter(
        overall(decide({metric: list(values[gate]) for metric, values in drawn.items()}))
        for gate in range(gates)
    )
    return Rates(gates, {outcome: n / gates for outcome, n in counts.items()})
