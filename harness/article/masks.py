"""The article's masks, drawn by the engine's own specification of what a step may see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_uppercase
from typing import Final

from harness.article.experiments import config
from harness.article.trial import drawn, request, run
from harness.report.mask_figure import BoolMask, mask_figure
from harness.report.pictures import Picture, request_names, step_mask
from harness.report.step import DECODE, PREFILL, ScheduledTokens, Step
from harness.report.theme import inline_svg
from reference_engine.model import LoadedModel

_PAGE: Final = 16
_LENGTHS: Final = (4, 7, 12)
# Prompt and output tokens of the run whose successive steps are shown.
_SMALL_RUN: Final = ((5, 3), (14, 6), (3, 2), (9, 4), (6, 3))
_SMALL_BUDGET: Final = 12


def still_pictures() -> Iterator[Picture]:
    """One prompt, one cached decode, one chunk, a padded batch and a ragged one."""
    prompt = _step(("A", PREFILL, 0, 12))
    yield _picture(
        "prompt", "One prompt", prompt, "Causal: a token sees itself and what is before."
    )
    decode = _step(("A", DECODE, 12, 1))
    yield _picture(
        "decode", "One cached decode", decode, "One row: the keys before it come from the cache."
    )
    chunk = _step(("A", PREFILL, 8, 8))
    yield _picture(
        "chunk",
        "A chunk of a longer prompt",
        chunk,
        "A rectangle of cached keys, then the triangle of its own.",
    )
    yield _padded_picture()
    ragged = _step(*((name, PREFILL, 0, n) for name, n in zip("ABC", _LENGTHS, strict=True)))
    yield _picture(
        "ragged",
        "The same prompts, ragged",
        ragged,
        f"{ragged.rows} rows instead of {ragged.padded_rows}: one row of tokens, and the mask keeps"
        " the requests apart.",
    )


def continuous_pictures(model: LoadedModel, count: int = 4) -> Iterator[Picture]:
    """Successive steps of a real run under a budget of 12 tokens."""
    requests = [request(n, p, o, model) for n, (p, o) in zip("ABCDE", _SMALL_RUN, strict=True)]
    steps = drawn(run(model, config(token_budget=_SMALL_BUDGET, max_num_seqs=4), requests))
    for number, step in enumerate(steps[1 : count + 1], start=2):
        kinds = f"{step.tokens_of(DECODE)} decoded, {step.tokens_of(PREFILL)} prefilled"
        yield _picture(
            f"continuous-{number}",
            f"Continuous batch, step {number}",
            step,
            f"{step.rows} of {_SMALL_BUDGET} tokens: {kinds}.",
            names=[s.request_id for s in step.scheduled],
        )


def padded_mask(lengths: Sequence[int]) -> tuple[Step, BoolMask]:
    """A batch padded on the left, [B * longest, B * longest]: nobody sees the padding."""
    longest = max(lengths)
    step = _step(*((str(i), PREFILL, 0, longest) for i in range(len(lengths))))
    mask = step_mask(step, _PAGE)
    for index, length in enumerate(lengths):
        first = index * longest
        mask[first : first + longest - length, :] = False
        mask[:, first : first + longest - length] = False
    return step, mask


def _padded_picture() -> Picture:
    step, mask = padded_mask(_LENGTHS)
    padding = [max(_LENGTHS) - n for n in _LENGTHS]
    figure = mask_figure(step, mask, list("ABC"), padding=padding, width_in=4.6)
    return Picture(
        "Three prompts, padded",
        inline_svg(figure, "padded", "Mask of a padded batch"),
        f"{step.rows} rows for {sum(_LENGTHS)} tokens: the tinted rows are computed for nobody.",
        wide=False,
    )


def _step(*scheduled: tuple[str, str, int, int]) -> Step:
    return Step(0, 0.0, 1.0, tuple(ScheduledTokens(*s) for s in scheduled))


def _picture(
    name: str, title: str, step: Step, caption: str, names: Sequence[str] | None = None
) -> Picture:
    """Half as wide as the page; a request called B has the second colour in every picture."""
    named = request_names(step) if names is None else list(names)
    inks = [ascii_uppercase.index(n) for n in named]
    figure = mask_figure(step, step_mask(step, _PAGE), named, inks=inks, width_in=4.6)
    return Picture(title, inline_svg(figure, name, f"Mask: {title}"), caption, wide=False)
