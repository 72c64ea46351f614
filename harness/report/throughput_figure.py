"""Tokens a second over the run, with how many streams were open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.report.theme import ACCENT, WARM, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def throughput_figure(
    chunks: Sequence[tuple[float, int]], streams: Sequence[tuple[float, float]]
) -> Figure:
    """Draw output tokens a second, and below it the open streams.

    ``chunks`` of all requests: when each arrived and how many tokens it carried. ``streams``: when
    each request was sent and when it ended. All in seconds since the run began. Raises ValueError
    without chunks.
    """
    if not chunks:
        raise ValueError("no token arrived, so there is no throughput to draw")
    times_s, tokens = zip(*chunks, strict=True)
    end_s = max(max(times_s), max((e for _, e in streams), default=0.0))
    bins = np.linspace(0, end_s, min(max(int(end_s / 0.25), 8), 60) + 1)
    counts, _ = np.histogram(times_s, bins, weights=np.asarray(tokens, float))
    per_s = counts / (bins[1] - bins[0])
    changes = sorted([(s, 1) for s, _ in streams] + [(e, -1) for _, e in streams])
    with drawing() as figure_class:
        figure = figure_class(figsize=(9.6, 2.9), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        upper.stairs(per_s, bins, fill=True, color=ACCENT, alpha=0.25)
        upper.stairs(per_s, bins, color=ACCENT, linewidth=1.6)
        upper.set_ylabel("output tokens/s")
        if changes:
            times = [t for t, _ in changes]
            open_streams = np.cumsum([c for _, c in changes])
            lower.stairs(open_streams[:-1], times, fill=True, color=WARM, alpha=0.3)
            lower.stairs(open_streams[:-1], times, color=WARM, linewidth=1.4)
        lower.set_ylabel("streams")
        lower.set_xlabel("seconds since the load began")
        upper.set_xlim(0, end_s)
        upper.set_ylim(bottom=0)
        lower.set_ylim(bottom=0)
    return figure
