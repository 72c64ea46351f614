"""Service level objectives: what a good request is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from harness.metrics.definitions import DEFINITIONS
from harness.metrics.samples import one_value
from harness.transcript import Ending, RequestTranscript


@dataclass(frozen=True, slots=True)
class Slo:
    """An upper limit, in seconds, on one metric that has one value a request."""

    metric_id: str
    limit_s: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``ttft.response=0.5`` (seconds). Raises ValueError with one sentence."""
        name, sign, value = text.partition("=")
        if not sign or name not in _ONE_VALUE:
            raise ValueError(
                f"objective {text!r}: expected METRIC=SECONDS, the metric one of "
                + ", ".join(_ONE_VALUE)
            )
        try:
            limit_s = float(value)
        except ValueError:
            raise ValueError(f"objective {text!r}: {value!r} is not a number of seconds") from None
        return cls(name, limit_s)

    def met_by(self, request: RequestTranscript) -> bool:
        """Whether the request kept it. One whose metric is undefined (tpot of one token) did."""
        value = one_value(self.metric_id, request)
        return value is None or value <= self.limit_s

    def __str__(self) -> str:
        return f"{self.metric_id}<={self.limit_s:g}s"


def is_good(request: RequestTranscript, objectives: tuple[Slo, ...]) -> bool:
    """Complete, and within every objective."""
    return request.ending is Ending.COMPLETE and all(o.met_by(request) for o in objectives)


_ONE_VALUE = [d.id for d in DEFINITIONS.values() if d.sampled and d.id not in ("chunk_gap", "itl")]
