"""The article's charts: the first token, the cost of a token by length, the four policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.article.findings import CacheCost, FirstToken, Policy, Slope
from harness.report.theme import ACCENT, INK, MUTED, WARM, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def first_token_figure(found: FirstToken) -> Figure:
    """A bar a token: the first waits for the prompt, the others follow steadily."""
    times_ms = [1e3 * found.first_s, *(1e3 * s for s in found.later_s)]
    with drawing() as figure_class:
        figure = figure_class(figsize=(9.6, 2.7), layout="constrained")
        axes = figure.subplots()
        inks = [WARM] + [ACCENT] * (len(times_ms) - 1)
        axes.bar(range(1, len(times_ms) + 1), times_ms, color=inks, width=0.75)
        axes.annotate(
            f"first token: {times_ms[0]:.3g} ms",
            (1, times_ms[0]),
            xytext=(12, -10),
            textcoords="offset points",
            color=INK,
        )
        axes.set_xlim(0.3, len(times_ms) + 0.7)
        axes.set_xlabel("token")
        axes.set_ylabel("processor ms")
        axes.grid(visible=False, axis="x")
    return figure


def cache_cost_figure(found: CacheCost) -> Figure:
    """Cost of the next token over the length before it, measured and fitted."""
    with drawing() as figure_class:
        figure = figure_class(figsize=(9.6, 3.4), layout="constrained")
        axes = figure.subplots()
        ends = np.array([0, found.lengths[-1]])
        for name, times_s, slope, ink, style in (
            ("everything again", found.recomputed_s, found.recomputed_slope, WARM, (0, (5, 2))),
            ("with the KV cache", found.cached_s, found.cached_slope, ACCENT, "-"),
        ):
            axes.plot(found.lengths, [1e3 * t for t in times_s], "o", color=ink)
            fitted = 1e3 * (slope.at_zero_s + slope.per_token_s * ends)
            label = f"{name}: {slope_text(slope)}"
            axes.plot(ends, fitted, linestyle=style, color=ink, label=label)
        axes.set_xlabel("tokens before it")
        axes.set_ylabel("processor ms for the next token")
        axes.set_xlim(0, found.lengths[-1] * 1.04)
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left")
    return figure


def slope_text(slope: Slope) -> str:
    """The slope with its bounds, in microseconds a token."""
    low, middle, high = (1e6 * v for v in (slope.low, slope.per_token_s, slope.high))
    return f"{middle:.3g} \N{MICRO SIGN}s a token [{low:.3g}, {high:.3g}]"


def policies_figure(policies: Sequence[Policy]) -> Figure:
    """Useful tokens a processor second, one bar a policy."""
    with drawing() as figure_class:
        figure = figure_class(figsize=(9.6, 2.4), layout="constrained")
        axes = figure.subplots()
        rates = [policy.rate for policy in policies]
        inks = [MUTED] * (len(policies) - 1) + [ACCENT]
        axes.barh([p.name for p in policies], rates, color=inks, height=0.62)
        for y, (policy, rate) in enumerate(zip(policies, rates, strict=True)):
            axes.text(
                rate,
                y,
                f"  {rate:.0f}   {policy.rows:,} rows in {policy.steps} steps",
                va="center",
                fontsize=8,
            )
        axes.invert_yaxis()
        axes.set_xlim(0, max(rates) * 1.35)
        axes.set_xlabel("useful output tokens a processor second")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", labelcolor=INK, length=0)
    return figure
