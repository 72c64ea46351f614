"""Guesses at the cause of a wrong answer, by asking which simple slip would have given it.

Each hypothesis is a prompt or an answer that a known kind of defect would produce; the rule, or the
reference model, says what a server with that defect would have answered. A guess is offered only
when the wrong answer is reproduced for several tokens after the first difference, so it is rarely a
coincidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from harness.oracles.oracle import first_difference

Answers = Callable[[Sequence[int], int], tuple[int, ...] | None]
"""The greedy answer of so many tokens to a context, past any end; None where there is none."""

_ENOUGH_TOKENS: Final = 4
_PAGE_SIZES: Final = (16, 32, 64, 128, 256)


def diagnose(
    answers: Answers,
    prompt_ids: Sequence[int],
    expected: Sequence[int],
    actual: Sequence[int],
    neighbours: Sequence[Sequence[int]] = (),
) -> str | None:
    """A sentence that explains ``actual``, or None when no simple slip does."""
    guess = _shape(expected, actual) or _foreign_answer(answers, actual, neighbours)
    if guess:
        return guess
    broken_at = first_difference(expected, actual) or 0
    if len(actual) - broken_at < _ENOUGH_TOKENS:
        return None
    context = (*prompt_ids, *expected[:broken_at])
    tail = tuple(actual[broken_at : broken_at + 8])
    for sentence, slipped in _slipped_contexts(context, len(prompt_ids), neighbours):
        if slipped and answers(slipped, len(tail)) == tail:
            return f"from token {broken_at} on, the answer is the one to a context where {sentence}"
    return None


def _shape(expected: Sequence[int], actual: Sequence[int]) -> str | None:
    """Slips that show in the answer alone: cut, doubled, skipped, started again."""
    at = first_difference(expected, actual)
    if at is None:
        return None
    if at == len(actual):
        return f"the answer stops after {at} of {len(expected)} tokens"
    if at == len(expected):
        return f"the answer goes on for {len(actual) - at} tokens after its end"
    rest = actual[at:]
    if len(rest) < _ENOUGH_TOKENS:
        return None
    if at and rest[0] == actual[at - 1] and _continues(expected[at:], rest[1:]):
        return f"token {at - 1} is delivered twice"
    if _continues(expected[at + 1 :], rest):
        return f"token {at} is left out"
    for start in range(at, 0, -1):
        if _continues(expected, actual[start:]):
            return f"after {start} tokens the answer starts again from its beginning"
    if len(set(rest)) == 1:
        return f"from token {at} on, the answer is one token repeated"
    return None


def _continues(right: Sequence[int], given: Sequence[int]) -> bool:
    length = min(len(right), len(given))
    return length >= _ENOUGH_TOKENS - 1 and tuple(right[:length]) == tuple(given[:length])


def _foreign_answer(
    answers: Answers, actual: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> str | None:
    """The answer of another request in place of this one's."""
    if len(actual) < _ENOUGH_TOKENS:
        return None
    for index, prompt in enumerate(neighbours):
        if answers(prompt, len(actual)) == tuple(actual):
            return f"this is the answer to another request's prompt (neighbour {index})"
    return None


def _slipped_contexts(
    context: Sequence[int], prompt_tokens: int, neighbours: Sequence[Sequence[int]]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Contexts that a defect might have shown the model in place of ``context``."""
    ids = tuple(context)
    last = len(ids) - 1
    yield "the last token is missing", ids[:-1]
    yield "the last prompt token is missing", ids[: prompt_tokens - 1] + ids[prompt_tokens:]
    yield "the token after BOS is missing", ids[:1] + ids[2:]
    yield "the token before the last is missing", ids[: last - 1] + ids[last:]
    yield "the last token is there twice", (*ids, ids[-1])
    yield "the answer so far is missing", ids[:prompt_tokens]
    for page in _PAGE_SIZES:
        for start in range(0, len(ids), page):
            if 0 < start < len(ids):
                sentence = f"tokens {start} to {start + page - 1} are missing (a page of {page})"
                yield sentence, ids[:start] + ids[start + page :]
    for index, other in enumerate(neighbours):
        yield f"the last token of neighbour {index} comes first", (ids[0], other[-1], *ids[1:])
        yield (
            f"the last token of neighbour {index} is visible before the last",
            (
                *ids[:-1],
                other[-1],
                ids[-1],
            ),
        )
        for page in _PAGE_SIZES:
            for start in range(0, min(len(other), len(ids)), page):
                swapped = ids[:start] + tuple(other[start : start + page]) + ids[start + page :]
                if len(swapped) == len(ids) and swapped != ids:
                    yield (
                        f"tokens {start} to {start + page - 1} are those of neighbour {index}",
                        swapped,
                    )
