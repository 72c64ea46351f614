"""The attention mask of one step as a picture: which token may look at which key.

The picture is drawn from the dense boolean mask, run by run, not from the metadata that the mask
was made of; a wrong mask would look wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.report.step import DECODE, Step
from harness.report.theme import GHOST, MUTED, PAPER, WARM, drawing, stream_ink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BoolMask = npt.NDArray[np.bool_]
_STRIP = 1.6  # height of the strip of keys above the mask, in cells
_MAX_GRID_KEYS = 200


def runs(row: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The stretches of True in one row, as (start, length)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], row, [False])).astype(np.int8)))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def mask_figure(
    step: Step,
    mask: BoolMask,
    labels: Sequence[str],
    *,
    page_size: int | None = None,
    note: str = "",
    padding: Sequence[int] = (),
    inks: Sequence[int] | None = None,
    width_in: float = 9.6,
) -> Figure:
    """Draw the mask of ``step``.

    ``mask``: [rows, keys], True where the row's token sees the key; rows and keys in the order of
    the step's requests. ``labels`` names them, ``note`` stands below. ``padding`` says how many
    rows of each request are padding, its first ones. ``inks`` numbers the requests' colours where
    several pictures share them. Raises ValueError when the shapes do not fit.
    """
    if mask.shape != (step.rows, step.keys) or len(labels) != len(step.scheduled):
        raise ValueError(
            f"the mask is {mask.shape}, the step has {step.rows} rows and {step.keys} keys"
        )
    colours = [stream_ink(i) for i in (range(len(labels)) if inks is None else inks)]
    margin_in = 1.3
    cell_in = max((width_in - margin_in) / step.keys, min(0.13, 5.2 / step.rows))
    cell_in = min(cell_in, 0.3)
    note_rows = 0.5 / cell_in if note else 0.3
    height_in = (step.rows + _STRIP + 3.2 + note_rows) * cell_in
    with drawing() as figure_class:
        figure = figure_class(figsize=(width_in, height_in))
        axes = figure.add_axes((margin_in / width_in, 0.0, 1 - (margin_in + 0.05) / width_in, 1.0))
        _draw_cells(axes, step, mask, colours)
        _draw_padding(axes, step, padding)
        _draw_key_strip(axes, step, page_size, colours)
        _draw_labels(axes, step, labels, colours, min_distance=0.14 / cell_in)
        axes.set_xlim(-0.5, step.keys + 0.5)
        axes.text(0, step.rows + note_rows, note, fontsize=8, color=MUTED, va="bottom")
        axes.set_ylim(step.rows + note_rows, -_STRIP - 3.2)
        axes.set_axis_off()
    return figure


def _draw_cells(axes: Any, step: Step, mask: BoolMask, colours: Sequence[str]) -> None:
    """Every visible stretch in its request's ink over a ghost of all that is masked."""
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((0, 0), step.keys, step.rows, color=GHOST, linewidth=0))
    row = 0
    for index, scheduled in enumerate(step.scheduled):
        rectangles = [
            Rectangle((start, row + offset), length, 1)
            for offset in range(scheduled.tokens)
            for start, length in runs(mask[row + offset])
        ]
        axes.add_collection(
            PatchCollection(rectangles, facecolor=colours[index], linewidth=0, alpha=0.92)
        )
        row += scheduled.tokens
    if step.keys <= _MAX_GRID_KEYS:
        upright = [[(x, 0), (x, step.rows)] for x in range(step.keys + 1)]
        level = [[(0, y), (step.keys, y)] for y in range(step.rows + 1)]
        axes.add_collection(LineCollection(upright + level, colors=PAPER, linewidths=0.7))


def _draw_padding(axes: Any, step: Step, padding: Sequence[int]) -> None:
    """Rows that are computed and thrown away, hatched over their own request's keys."""
    from matplotlib.patches import Rectangle

    row = column = 0
    for scheduled, rows in zip(step.scheduled, padding, strict=False):
        axes.add_patch(
            Rectangle((column, row), scheduled.end, rows, facecolor=WARM, alpha=0.28, linewidth=0)
        )
        row += scheduled.tokens
        column += scheduled.end


def _draw_key_strip(axes: Any, step: Step, page_size: int | None, colours: Sequence[str]) -> None:
    """Above the mask: each request's keys, those from the cache pale, those of this step full."""
    from matplotlib.patches import Rectangle

    column = 0
    for index, scheduled in enumerate(step.scheduled):
        ink = colours[index]
        for start, length, alpha in (
            (column, scheduled.start, 0.32),
            (column + scheduled.start, scheduled.tokens, 1.0),
        ):
            axes.add_patch(
                Rectangle(
                    (start, -_STRIP - 0.5), length, _STRIP, facecolor=ink, alpha=alpha, linewidth=0
                )
            )
        if page_size is not None:
            for edge in range(page_size, scheduled.end, page_size):
                axes.plot([column + edge] * 2, [-_STRIP - 0.5, -0.5], color=PAPER, linewidth=1.4)
        column += scheduled.end
        if index + 1 < len(step.scheduled):
            axes.plot([column] * 2, [-_STRIP - 0.5, step.rows], color=PAPER, linewidth=2.0)


def _draw_labels(
    axes: Any,
    step: Step,
    labels: Sequence[str],
    colours: Sequence[str],
    *,
    min_distance: float,
) -> None:
    """Name the rows at the left and the keys above; ``min_distance`` in rows keeps names apart."""
    row = column = 0
    y = -min_distance
    for index, (scheduled, label) in enumerate(zip(step.scheduled, labels, strict=True)):
        ink = colours[index]
        y = max(row + scheduled.tokens / 2, y + min_distance)
        what = "decode"
        if scheduled.kind != DECODE:
            what = f"prefill {scheduled.start}\N{EN DASH}{scheduled.end - 1}"
        if scheduled.kind != DECODE and scheduled.tokens == 1:
            what = f"prefill {scheduled.start}"
        axes.text(-1, y, f"{label}  {what}", ha="right", va="center", fontsize=8, color=ink)
        if scheduled.end / step.keys > 0.03:
            middle = column + scheduled.end / 2
            axes.text(middle, -_STRIP - 0.9, label, ha="center", va="bottom", fontsize=8, color=ink)
        row += scheduled.tokens
        column += scheduled.end
    axes.text(-1, -_STRIP / 2 - 0.5, "keys", ha="right", va="center", fontsize=8, color=MUTED)
