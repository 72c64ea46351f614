"""A sweep to saturation: one point a concurrency, from one stream until more gain nothing.

Concurrency doubles until throughput has stopped growing twice in a row, then the gap around the
knee is filled in. Every point is a closed loop of its own concurrency, so points are distinct and
in order by construction, and the sweep ends: after `Ladder.most` points at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

GROWTH: Final = 1.05
"""Throughput that grows by less than this factor at twice the streams has stopped growing."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one concurrency; seconds, and output tokens per second."""

    streams: int
    output_tokens_per_s: float
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    failed: int = 0

    @property
    def tokens_per_s_per_stream(self) -> float:
        """What one user gets."""
        return self.output_tokens_per_s / self.streams


@dataclass(frozen=True, slots=True)
class Ladder:
    """Where a sweep may go: at most so many streams and so many points."""

    most_streams: int = 256
    most: int = 12


def sweep(measure: Callable[[int], Point], ladder: Ladder | None = None) -> list[Point]:
    """Measure points until saturation; ascending by streams, each concurrency once."""
    ladder = ladder or Ladder()
    points: dict[int, Point] = {}
    streams, flat, best = 1, 0, 0.0
    while streams <= ladder.most_streams and len(points) < ladder.most:
        point = points[streams] = measure(streams)
        flat = 0 if point.output_tokens_per_s > best * GROWTH else flat + 1
        best = max(best, point.output_tokens_per_s)
        if flat == 2 or point.failed:
            break
        streams *= 2
    for between in _around(knee(list(points.values())), points):
        if len(points) < ladder.most:
            points[between] = measure(between)
    return [points[streams] for streams in sorted(points)]


def knee(points: Sequence[Point]) -> Point:
    """The point after which streams buy more waiting than throughput.

    Kneedle's criterion (Satopaa and others, 2011) on the curve of throughput over streams, both
    scaled to 0..1: the point farthest above the diagonal. Of a straight line it is the last one.
    """
    ordered = sorted(points, key=lambda p: p.streams)
    first, last = ordered[0], ordered[-1]
    wide = max(1, last.streams - first.streams)
    low = min(p.output_tokens_per_s for p in ordered)
    high = max(p.output_tokens_per_s for p in ordered) - low or 1.0

    def above(p: Point) -> float:
        return (p.output_tokens_per_s - low) / high - (p.streams - first.streams) / wide

    best = max(ordered, key=lambda p: (round(above(p), 9), p.streams))
    return best if above(best) > 0.05 else last


def _around(centre: Point, points: dict[int, Point]) -> list[int]:
    """The middles between the knee and its neighbours, where there is room."""
    ladder = sorted(points)
    place = ladder.index(centre.streams)
    neighbours = ladder[max(0, place - 1) : place + 2]
    middles = {(a + b) // 2 for a, b in pairwise(neighbours)}
    return sorted(middles - points.keys())
