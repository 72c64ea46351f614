"""How a time is distributed: every sample counted, no bins to choose, no tail hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.report.theme import ACCENT, MUTED, WARM, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = ((ACCENT, "-"), (WARM, (0, (5, 2))), (MUTED, (0, (1, 1.5))))


def distribution_figure(samples_s: Mapping[str, Sequence[float]], *, axis_label: str) -> Figure:
    """Draw the share of samples at or below each time, one line a definition id.

    ``samples_s`` are seconds; the axis is in milliseconds, logarithmic when the samples span more
    than a factor of 30. Raises ValueError without samples, or with more than three lines.
    """
    drawn = {name: np.sort(np.asarray(v, float)) * 1e3 for name, v in samples_s.items() if len(v)}
    if not drawn or len(drawn) > len(_LINES):
        raise ValueError(f"one to {len(_LINES)} sets of samples can be drawn, not {len(drawn)}")
    with drawing() as figure_class:
        figure = figure_class(figsize=(4.6, 2.9), layout="constrained")
        axes = figure.subplots()
        for (name, times_ms), (ink, style) in zip(drawn.items(), _LINES, strict=False):
            shares = np.arange(1, len(times_ms) + 1) / len(times_ms)
            median_ms = float(np.median(times_ms))
            label = f"{name}, median {median_ms:.3g} ms"
            axes.step(times_ms, shares, where="post", color=ink, linestyle=style, label=label)
            axes.plot([median_ms], [0.5], "o", color=ink, markersize=5)
        smallest = min(float(t[0]) for t in drawn.values())
        largest = max(float(t[-1]) for t in drawn.values())
        if smallest > 0 and largest / smallest > 30:
            axes.set_xscale("log")
        else:
            axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel(axis_label)
        axes.legend(loc="lower right", fontsize=8)
    return figure
