"""Throughput against what each user gets, and latency against streams: a sweep at one glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.load.sweep import Point, knee
from harness.report.theme import ACCENT, WARM, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sweep_figure(points: Sequence[Point]) -> Figure:
    """Left: tokens/s in all over tokens/s a stream. Right: median TTFT over streams.

    The knee is marked on both. Raises ValueError without points.
    """
    if not points:
        raise ValueError("a sweep without points cannot be drawn")
    best = knee(points)
    streams = [p.streams for p in points]
    with drawing() as figure_class:
        figure = figure_class(figsize=(9.6, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        own = [p.tokens_per_s_per_stream for p in points]
        total = [p.output_tokens_per_s for p in points]
        left.plot(own, total, "o-", color=ACCENT, markersize=4)
        for p in points:
            left.annotate(
                str(p.streams),
                (p.tokens_per_s_per_stream, p.output_tokens_per_s),
                textcoords="offset points",
                xytext=(4, 4),
                fontsize=7,
            )
        mark = {
            "markersize": 9,
            "fillstyle": "none",
            "color": WARM,
            "label": f"knee: {best.streams}",
        }
        left.plot([best.tokens_per_s_per_stream], [best.output_tokens_per_s], "o", **mark)
        left.set_xlabel("output tokens/s a stream")
        left.set_ylabel("output tokens/s in all")
        left.set_ylim(bottom=0)
        left.legend(fontsize=8)
        known = [(p.streams, p.ttft_p50_s * 1e3) for p in points if p.ttft_p50_s is not None]
        if known:
            right.plot(*zip(*known, strict=True), "o-", color=ACCENT, markersize=4)
        if best.ttft_p50_s is not None:
            right.plot([best.streams], [best.ttft_p50_s * 1e3], "o", **mark)
        right.set_xscale("log", base=2)
        right.set_xticks(streams, [str(s) for s in streams], fontsize=7)
        right.set_xlabel("streams at once")
        right.set_ylabel("median TTFT, ms")
        right.set_ylim(bottom=0)
    return figure
