"""The pictures of a run, each with the sentence that says what to see in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

import numpy as np
from markupsafe import Markup

from harness.report.distribution_figure import distribution_figure
from harness.report.mask_figure import BoolMask, mask_figure
from harness.report.run_view import RunView
from harness.report.schedule_figure import schedule_figure
from harness.report.step import Step, most_telling
from harness.report.theme import inline_svg, standalone_svg
from harness.report.throughput_figure import throughput_figure

_MAX_STEPS_DRAWN: Final = 120


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG with its heading and caption; ``wide`` ones take the whole width of the page."""

    title: str
    svg: Markup
    caption: str
    wide: bool = True


def pictures(view: RunView) -> list[Picture]:
    """Every picture for which the run has rows."""
    return [*_mask(view.steps, view.page_size), *_schedule(view), *_times(view)]


def step_mask(step: Step, page_size: int) -> BoolMask:
    """[rows, keys]: what the step's metadata means, by the engine's own specification.

    Page numbers do not matter for who sees whom, so any will do.
    """
    from reference_engine.batch import BatchBuilder, BatchSequence
    from reference_engine.mask import dense_mask

    batch = BatchBuilder(page_size).build(
        [
            BatchSequence((0,) * s.tokens, s.start, [range(-(-s.end // page_size))])
            for s in step.scheduled
        ]
    )
    return np.asarray(dense_mask(batch).visible.numpy(), dtype=bool)


def mask_svg(view: RunView) -> str | None:
    """The mask of the run's most telling step as an SVG file; None when no step fits a picture."""
    step = most_telling(view.steps)
    if step is None:
        return None
    note = (
        f"One step: {step.rows} tokens of {len(step.scheduled)} requests in one row, no padding"
        f" (as a padded rectangle: {step.padded_rows}). A line is a token, a column is a key,\n"
        "colour means that the token sees the key. Pale keys come from the paged cache, full ones"
        " from this step."
    )
    mask = step_mask(step, view.page_size or 16)
    figure = mask_figure(step, mask, request_names(step), page_size=view.page_size, note=note)
    return standalone_svg(figure, "mask")


def request_names(step: Step) -> list[str]:
    """A, B, C, ...: short names for the requests of one step."""
    return [
        ascii_uppercase[i] if i < 26 else f"{ascii_uppercase[i % 26]}{i // 26}"
        for i in range(len(step.scheduled))
    ]


def _mask(steps: Sequence[Step], page_size: int | None) -> Iterator[Picture]:
    step = most_telling(steps)
    if step is None:
        return
    figure = mask_figure(
        step, step_mask(step, page_size or 16), request_names(step), page_size=page_size
    )
    yield Picture(
        "One step, one row of tokens, one mask",
        inline_svg(figure, "mask", f"Attention mask of step {step.index}: {step.rows} tokens"),
        f"Step {step.index} of this run. Each line is one token of the step, each column one key;"
        " colour means that the token sees the key. Requests share the row and never see each"
        " other. The strip above shows the keys: pale ones were in the paged cache, full ones"
        f" came with this step. {step.rows} rows were computed; the same step padded to a"
        f" rectangle would have {step.padded_rows}.",
    )


def _schedule(view: RunView) -> Iterator[Picture]:
    steps = view.steps[-_MAX_STEPS_DRAWN:] if not view.labels else _steps_of_load(view)
    if not steps:
        return
    figure = schedule_figure(steps, labels=view.labels, token_budget=view.token_budget)
    yield Picture(
        "The schedule",
        inline_svg(figure, "schedule", f"Timeline of {len(steps)} engine steps"),
        f"{len(steps)} steps. Tall bars are prefill chunks, slim bars are decodes, one lane a"
        " request. Below: what filled each step. A request that ends makes room in the very next"
        " step.",
    )


def _steps_of_load(view: RunView) -> Sequence[Step]:
    """The last steps that served requests of the recorded load, up to the number drawn."""
    known = view.labels
    served = [s for s in view.steps if any(r.request_id in known for r in s.scheduled)]
    return served[:_MAX_STEPS_DRAWN]


def _times(view: RunView) -> Iterator[Picture]:
    if ttft_s := view.ttft_s:
        figure = distribution_figure(ttft_s, axis_label="time to first token, ms")
        yield Picture(
            "Time to first token",
            inline_svg(figure, "ttft", "Distribution of the time to first token"),
            "Share of requests whose first token had come by then. Response counts from when the"
            " request was due, service from when it was sent.",
            wide=False,
        )
    if chunk_gap_s := view.chunk_gap_s:
        figure = distribution_figure(chunk_gap_s, axis_label="gap between chunks, ms")
        yield Picture(
            "Gaps between chunks",
            inline_svg(figure, "gap", "Distribution of the gaps between chunks of a stream"),
            "Share of gaps at or below that time, over all streams.",
            wide=False,
        )
    if chunks := view.chunks:
        figure = throughput_figure(chunks, view.streams)
        yield Picture(
            "Throughput",
            inline_svg(figure, "throughput", "Output tokens a second and open streams over time"),
            "Output tokens a second as the client saw them arrive, and the streams open then.",
        )
