"""What a client without any error of its own would have measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Sends:
    """One answer as the server sent it: when its request arrived, by the kernel's stamp where there
    is one, and when each event was sent. Seconds on this machine's monotonic clock."""

    arrived_s: float
    sent_s: list[float] = field(default_factory=list)

    @classmethod
    def of_lines(cls, body: bytes) -> dict[str, Self]:
        """What `Truth.take_sends` told, by the id of the response."""
        documents: list[Mapping[str, Any]] = [json.loads(line) for line in body.splitlines()]
        return {d["id"]: cls(d["arrived_s"], d["sent_s"]) for d in documents}


@dataclass(slots=True)
class Truth:
    """Seconds from a request's arrival to its first send, and between the sends of an answer.

    ``sends`` are the answers by the id of the response.
    """

    ttfts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    sends: dict[str, Sends] = field(default_factory=dict)

    def take(self) -> dict[str, dict[str, float | int | None]]:
        """Count, mean, median and p99 of both, and forget them."""
        summary = {"ttft_s": _summary(self.ttfts), "gap_s": _summary(self.gaps)}
        self.ttfts, self.gaps = [], []
        return summary

    def take_sends(self) -> bytes:
        """Each answer's times as a line of JSON, and forget them."""
        sends, self.sends = self.sends, {}
        return b"".join(
            json.dumps({"id": key, "arrived_s": one.arrived_s, "sent_s": one.sent_s}).encode()
            + b"\n"
            for key, one in sends.items()
        )


def _summary(values: list[float]) -> dict[str, float | int | None]:
    ordered = sorted(values)
    n = len(ordered)
    return {
        "count": n,
        "mean": sum(ordered) / n if n else None,
        "p50": ordered[n // 2] if n else None,
        "p99": ordered[min(n - 1, int(0.99 * n))] if n else None,
    }
