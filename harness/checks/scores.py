"""Reading logprobs out of a transcript, and saying when two of them are the same number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def close(first: float, second: float) -> bool:
    """Whether two logprobs may be the same number, computed twice."""
    return math.isclose(first, second, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def assert_same_scores(
    key: str, given: Sequence[Scores | None], expected: Sequence[Scores | None], ids: Sequence[int]
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
