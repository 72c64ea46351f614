"""A metric that the gate guards: which number, which way is worse, how much worse matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from harness.results.document import MetricRow


@dataclass(frozen=True, slots=True)
class GuardedMetric:
    """``delta`` is the relative slowdown that matters: 0.03 is three per cent."""

    id: str
    statistic: str
    delta: float
    larger_is_worse: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise ValueError(f"delta of {self.name} is {self.delta:g}, should be between 0 and 1")

    @property
    def name(self) -> str:
        """How tables call it."""
        return self.id if self.statistic == "value" else f"{self.id} {self.statistic}"

    def slowdown(self, base: float, head: float) -> float:
        """Log of how many times worse the head is; 0 is no change, positive is worse."""
        ratio = head / base if self.larger_is_worse else base / head
        return math.log(ratio)

    def value(self, rows: Sequence[MetricRow]) -> float | None:
        """The metric's number over the whole run, None where it is undefined or not positive."""
        for row in rows:
            if row["id"] == self.id and row["statistic"] == self.statistic:
                if row["window"] == "steady" or row["value"] is None or row["value"] <= 0:
                    continue
                return row["value"]
        return None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``ID[:STATISTIC]=DELTA%``, as on the command line. Raises ValueError."""
        name, equals, delta = text.partition("=")
        metric_id, _, statistic = name.partition(":")
        try:
            share = float(delta.removesuffix("%")) / 100
        except ValueError:
            equals = ""
            share = 0.0
        if not equals or not metric_id:
            raise ValueError(
                f"{text!r} is no metric: write ID[:STATISTIC]=DELTA%, as in tpot:p50=5%"
            )
        rate = metric_id.startswith(("throughput.", "goodput", "ragged_efficiency"))
        return cls(metric_id, statistic or ("value" if rate else "p50"), share, not rate)


DEFAULT_METRICS: Final = (
    GuardedMetric("throughput.output", "value", 0.03, larger_is_worse=False),
    GuardedMetric("ttft.response", "p50", 0.05),
    GuardedMetric("tpot", "p50", 0.05),
    GuardedMetric("chunk_gap", "p99", 0.15),
)
