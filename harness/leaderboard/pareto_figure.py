"""Speed for one user against speed for all: the trade every server makes, and its frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.report.theme import INK, MUTED, PAPER, drawing, short, stream_ink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = tuple[float, float]


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats on both axes, from left to right."""
    best: list[Point] = []
    for x, y in sorted(set(points), reverse=True):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return best[::-1]


def pareto_figure(points: Sequence[tuple[str, float, float, bool]]) -> Figure:
    """Draw (label, tokens/s per stream, output tokens/s in all, passed).

    A server that did not pass its checks is drawn hollow and does not count for the frontier.
    Raises ValueError without points.
    """
    if not points:
        raise ValueError("no run has both rates")
    front = frontier([(x, y) for _, x, y, passed in points if passed])
    with drawing() as figure_class:
        figure = figure_class(figsize=(9.6, 4.2), layout="constrained")
        axes = figure.subplots()
        if front:
            xs, ys = [front[0][0] * 0.0, *(p[0] for p in front)], [p[1] for p in front]
            axes.step([*xs, xs[-1]], [ys[0], *ys, 0], where="pre", color=MUTED, linewidth=1.2)
        for index, (label, x, y, passed) in enumerate(points):
            ink = stream_ink(index)
            face = ink if passed else PAPER
            axes.plot([x], [y], "o", markersize=9, color=ink, markerfacecolor=face)
            axes.annotate(
                short(label) if passed else f"{short(label)} (not passed)",
                (x, y),
                xytext=(9, 5),
                textcoords="offset points",
                fontsize=8,
                color=INK,
            )
        axes.set_xlabel("tokens/s a stream (1 / median TPOT)")
        axes.set_ylabel("output tokens/s, all streams")
        axes.set_xlim(0, 1.25 * max(x for _, x, _, _ in points))
        axes.set_ylim(0, 1.15 * max(y for _, _, y, _ in points))
    return figure
