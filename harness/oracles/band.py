"""The band: how far a server's numbers move by themselves, and so what counts as a near-tie.

Two honest runs of one request may part where two tokens are so close that another order of
summation swaps them. How close that is depends on the server's number format and kernels, so it is
measured on the idle server, never assumed, and capped.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.oracles.oracle import Agreement, Judgement
from harness.oracles.oracle import first_difference as where_differs
from harness.transcript import Ending, RequestTranscript

# The largest band ever granted, in nat: 2 units in the last place of a bf16 logit between 16 and
# 32 (0.125 each), twice, because the gap is a difference of two logits.
BAND_CAP: Final = 0.5
BAND_FLOOR: Final = 1e-4
_BAND_MARGIN: Final = 2.0
# A move so many times the median one is no rounding: it is left out of the band, not granted.
_OUTLIER: Final = 32.0

Tops = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Band:
    """How far logprobs moved by themselves, in nat, and the gap granted for a tie flip.

    ``alone`` between two solo runs, ``together`` between solo and benign batching, ``reference``
    between the idle server and our engine on the same tokens; None where not measured.
    ``texts_differed``: of ``compared`` answers, those that differed while measuring.
    """

    alone: float | None
    together: float | None
    texts_differed: int
    compared: int
    reference: float | None = None

    @property
    def granted(self) -> float | None:
        """The gap up to which a difference is a tie flip; None where none can be told."""
        measured = [m for m in (self.alone, self.together, self.reference) if m is not None]
        if not measured:
            return None
        return min(BAND_CAP, max(BAND_FLOOR, _BAND_MARGIN * max(measured)))


def noise(moves: Sequence[float]) -> float:
    """The largest of the moves that are rounding: not many times the median of those that moved."""
    moved = [m for m in moves if m > BAND_FLOOR]
    if not moved:
        return max(moves, default=0.0)
    return max(m for m in moved if m <= _OUTLIER * statistics.median(moved))


def tops(answer: RequestTranscript) -> list[Tops]:
    """The best tokens at each output position of choice 0, by name."""
    return [top for chunk in answer.first.chunks for top in chunk.top_logprobs or ()]


def likeliest(top: Tops) -> str:
    """The name of the best token."""
    return max(top, key=lambda name: top[name])


def moves(pairs: Sequence[tuple[RequestTranscript, RequestTranscript]]) -> list[float]:
    """How far the best token's logprob moved at each place, up to the first difference."""
    found: list[float] = []
    for first, second in pairs:
        for right, given in zip(tops(first), tops(second), strict=False):
            if not right or not given:
                break
            best = likeliest(right)
            if best in given:
                found.append(abs(right[best] - given[best]))
            if likeliest(given) != best:
                break
    return found


def compare_answers(
    first: RequestTranscript, second: RequestTranscript, band: Band
) -> Judgement | None:
    """How ``second`` compares with ``first``; None where a difference cannot be judged."""
    right, given = first.first.text, second.first.text
    if second.ending is Ending.CANCELLED:
        right = right[: len(given)]
    difference = where_differs(right, given)
    seen = _places(first, second)
    if difference is None:
        return Judgement(Agreement.EXACT, right, given, trials=_trials(first, seen, None))
    granted = band.granted
    if granted is None:
        if band.texts_differed:
            return None
        return Judgement(Agreement.DIVERGENCE, right, given, difference)
    gap = gap_at_first_difference(first, second)
    if gap is None:
        gap = gap_by_text(first, given)
    flipped = gap is not None and gap <= granted
    if not flipped:
        return Judgement(Agreement.DIVERGENCE, right, given, difference, gap)
    trials = _trials(first, seen, seen)
    return Judgement(Agreement.TIE_FLIP, right, given, difference, gap, trials=trials)


def gap_at_first_difference(first: RequestTranscript, second: RequestTranscript) -> float | None:
    """How much likelier the first answer's token was than the second's, where they part, in nat.

    By the first answer's own top logprobs. A token that is not among them is at least as far as
    the last of them. None where the logprobs do not show where the answers part.
    """
    for right, given in zip(tops(first), tops(second), strict=False):
        if not right or not given:
            return None
        best, taken = likeliest(right), likeliest(given)
        if best != taken:
            return right[best] - right.get(taken, min(right.values()) - BAND_CAP)
    return None


def gap_by_text(first: RequestTranscript, given: str) -> float | None:
    """The same for a second answer of which only the text is known.

    The names of the first answer's tokens are read as text. At the place where they leave
    ``given``, the likeliest other token that ``given`` goes on with was taken; one that is not
    among the best is at least as far as the last of them. None where names are not text.
    """
    names = [likeliest(top) for top in tops(first) if top]
    if not first.first.text.startswith("".join(names)):
        return None
    at = 0
    for top, name in zip(tops(first), names, strict=False):
        rest = given[at:]
        if rest.startswith(name):
            at += len(name)
            continue
        others = [p for other, p in top.items() if other and rest.startswith(other)]
        return top[name] - max(others, default=min(top.values()) - BAND_CAP)
    return None


def _places(first: RequestTranscript, second: RequestTranscript) -> int:
    """Positions at which both chose the same token, as far as logprobs or texts show."""
    same = 0
    for right, given in zip(tops(first), tops(second), strict=False):
        if not right or not given or likeliest(right) != likeliest(given):
            return same
        same += 1
    return same


def _trials(
    first: RequestTranscript, same: int, flipped_at: int | None
) -> tuple[tuple[int, bool], ...]:
    """Each place that was compared, once, and whether it flipped."""
    base = hash(first.first.text)
    trials = [(hash((base, place)), False) for place in range(same)]
    if flipped_at is not None:
        trials.append((hash((base, flipped_at)), True))
    return tuple(trials)
