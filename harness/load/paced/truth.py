"""What a client without any error of its own would have measured."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Truth:
    """Seconds from a request's arrival to its first send, and between the sends of an answer."""

    ttfts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def take(self) -> dict[str, dict[str, float | int | None]]:
        """Count, mean, median and p99 of both, and forget them."""
        summary = {"ttft_s": _summary(self.ttfts), "gap_s": _summary(self.gaps)}
        self.ttfts, self.gaps = [], []
        return summary


def _summary(values: list[float]) -> dict[str, float | int | None]:
    ordered = sorted(values)
    n = len(ordered)
    return {
        "count": n,
        "mean": sum(ordered) / n if n else None,
        "p50": ordered[n // 2] if n else None,
        "p99": ordered[min(n - 1, int(0.99 * n))] if n else None,
    }
