"""Reading logprobs out of a transcript, and saying when two of them are the same number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harness.checks.assertions import assert_equal, assert_that
from harness.transcript import RequestTranscript

# Two honest runs may differ by rounding: bf16 keeps about three digits of a logit.
_RELATIVE: Final = 0.02
_ABSOLUTE: Final = 0.3

Scores = dict[int, float]


def output_logprobs(answer: RequestTranscript) -> list[float]:
    """The logprob of each output token of choice 0, in order."""
    return [p for chunk in answer.first.chunks for p in chunk.logprobs or ()]


def top_logprobs(answer: RequestTranscript) -> list[Mapping[str, float]]:
    """The best tokens at each output position of choice 0."""
    return [top for chunk in answer.first.chunks for top in chunk.top_logprobs or ()]


def prompt_scores(answer: RequestTranscript) -> list[Scores | None]:
    """Prompt logprobs as {token id: logprob} by position, None where the server gives none."""
    scores: list[Scores | None] = []
    for entry in answer.prompt_logprobs or ():
        if not isinstance(entry, Mapping):
            scores.append(None)
            continue
        scores.append({int(token): _logprob(value) for token, value in entry.items()})
    return scores


def _logprob(value: Any) -> float:
    return float(value["logprob"] if isinstance(value, Mapping) else value)


def close(first: float, second: float, band: float | None = None) -> bool:
    """Whether two logprobs may be the same number, computed twice.

    ``band``: what was measured of this server, in nat; it only ever narrows what is granted.
    Unlikely tokens move further, in proportion to their logprob.
    """
    if not math.isclose(first, second, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE):
        return False
    return band is None or abs(first - second) <= band * max(1.0, abs(first))


def assert_same_scores(
    key: str,
    given: Sequence[Scores | None],
    expected: Sequence[Scores | None],
    ids: Sequence[int],
    close: Callable[[float, float], bool] = close,
) -> None:
    """The logprob of each prompt token is the same in both, within rounding."""
    assert_equal(f"the number of prompt logprobs of {key}", len(given), len(expected), key=key)
    for place, (mine, right) in enumerate(zip(given, expected, strict=True)):
        if mine is None or right is None:
            assert_equal(f"the prompt logprob {place} of {key}", mine, right, key=key)
            continue
        token = ids[place]
        if token in mine and token in right:
            assert_that(
                close(mine[token], right[token]),
                f"prompt logprob {place} of {key} is {mine[token]:.3f}, was {right[token]:.3f}",
                request_key=key,
                expected=right[token],
                actual=mine[token],
                first_difference=place,
            )
