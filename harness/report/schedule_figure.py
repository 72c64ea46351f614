"""The schedule as a timeline: which request was in which step, and what filled the steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.step import DECODE, PREFILL, Step
from harness.report.theme import ACCENT, GRID, INK, MUTED, PAPER, WARM, drawing, short, stream_ink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_LANES = 32


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of a lane: a prefill chunk, or decode steps without a gap between them."""

    kind: str
    t_start_s: float
    t_end_s: float
    tokens: int


def lanes(steps: Sequence[Step]) -> dict[str, list[Bar]]:
    """Each request's bars, requests in the order in which they were first scheduled.

    Decodes in successive steps join into one bar; a step without the request ends it.
    """
    found: dict[str, list[Bar]] = defaultdict(list)
    last_decode: dict[str, int] = {}
    for number, step in enumerate(steps):
        for scheduled in step.scheduled:
            bars = found[scheduled.lane]
            start_s = step.t_start_s
            tokens = scheduled.tokens
            if scheduled.kind == DECODE:
                if last_decode.get(scheduled.lane) == number - 1:
                    joined = bars.pop()
                    start_s, tokens = joined.t_start_s, joined.tokens + tokens
                last_decode[scheduled.lane] = number
            bars.append(Bar(scheduled.kind, start_s, step.t_end_s, tokens))
    return dict(found)


def schedule_figure(
    steps: Sequence[Step], *, labels: Mapping[str, str], token_budget: int | None = None
) -> Figure:
    """Draw lanes of requests over time, and below them how many tokens each step carried.

    ``labels`` names requests; one without a name is drawn under its own id. At most 32 lanes are
    drawn, the first ones. Raises ValueError without steps.
    """
    if not steps:
        raise ValueError("no steps to draw")
    drawn = list(lanes(steps).items())[:_MAX_LANES]
    t_zero_s = steps[0].t_start_s
    with drawing() as figure_class:
        figure = figure_class(figsize=(9.6, 2.4 + 0.19 * len(drawn)), layout="constrained")
        upper, lower = figure.subplots(
            2, 1, sharex=True, height_ratios=[max(0.19 * len(drawn), 0.6), 1.5]
        )
        for lane, (request_id, bars) in enumerate(drawn):
            _draw_lane(upper, lane, bars, t_zero_s)
            upper.text(
                -0.006,
                lane,
                short(labels.get(request_id, request_id), 14),
                transform=upper.get_yaxis_transform(),
                ha="right",
                va="center",
                fontsize=7,
                color=stream_ink(lane),
            )
        upper.set_ylim(len(drawn) - 0.4, -0.6)
        upper.set_yticks([])
        upper.tick_params(bottom=False)
        upper.spines[["left", "bottom"]].set_visible(False)
        upper.grid(visible=True, axis="x", color=GRID)
        _draw_composition(lower, steps, t_zero_s, token_budget)
    return figure


def _draw_lane(axes: Any, lane: int, bars: Sequence[Bar], t_zero_s: float) -> None:
    """Prefill chunks tall and full, decodes slim: the shape tells them apart without colour."""
    ink = stream_ink(lane)
    for kind, height, alpha in ((PREFILL, 0.78, 1.0), (DECODE, 0.34, 0.75)):
        spans = [
            (1e3 * (b.t_start_s - t_zero_s), 1e3 * (b.t_end_s - b.t_start_s))
            for b in bars
            if b.kind == kind
        ]
        axes.broken_barh(
            spans,
            (lane - height / 2, height),
            facecolor=ink,
            alpha=alpha,
            edgecolor=PAPER if kind == PREFILL else "none",
            linewidth=0.5,
        )


def _draw_composition(
    axes: Any, steps: Sequence[Step], t_zero_s: float, token_budget: int | None
) -> None:
    edges_ms = [1e3 * (s.t_start_s - t_zero_s) for s in steps]
    edges_ms.append(1e3 * (steps[-1].t_end_s - t_zero_s))
    decode = [s.tokens_of(DECODE) for s in steps]
    total = [s.rows for s in steps]
    axes.stairs(total, edges_ms, baseline=decode, fill=True, color=WARM, alpha=0.85)
    axes.stairs(decode, edges_ms, fill=True, color=ACCENT, alpha=0.85)
    axes.text(1.0, 1.02, "prefill", transform=axes.transAxes, color=WARM, ha="right", fontsize=8)
    axes.text(0.93, 1.02, "decode", transform=axes.transAxes, color=ACCENT, ha="right", fontsize=8)
    if token_budget is not None:
        axes.axhline(token_budget, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.text(
            0.004,
            token_budget,
            f"token budget {token_budget}",
            transform=axes.get_yaxis_transform(),
            va="bottom",
            fontsize=8,
            color=MUTED,
        )
        axes.set_ylim(0, token_budget * 1.25)
    axes.set_xlim(edges_ms[0], edges_ms[-1])
    axes.set_ylabel("tokens a step")
    axes.set_xlabel("ms since the first step shown")
