"""Spelling a text with a model's tokens, where several near-ties go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from harness.oracles.reference_model import Ids, TokenScores
from harness.oracles.spelling import MOST_SPELLINGS, Speller

WORDS = ("", "a", "add", "d", "b", "x", "additional", "aa")
BAND = 0.1
NEAR, FAR = 0.05, 2.0


class _Model:
    """Scores by hand: what follows which answer, and how far it is behind the likeliest."""

    codec: Any

    def __init__(self, after: dict[tuple[str, ...], dict[str, float]]) -> None:
        self.codec = self
        self.after = after

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(WORDS[i] for i in ids)

    def _scores(self, ids: Ids) -> TokenScores:
        said = tuple(WORDS[i] for i in ids[1:])
        gaps = self.after.get(said, self.after.get((), {}))
        return TokenScores({i: -gaps.get(word, FAR) for i, word in enumerate(WORDS)}, whole=True)

    async def forced(self, prompt: Ids, output: Ids) -> list[TokenScores]:
        return [self._scores((*prompt, *output[:i])) for i in range(len(output) + 1)]

    async def greedy(self, prompt: Ids, max_tokens: int) -> Ids:
        output: list[int] = []
        for _ in range(max_tokens):
            output.append(self._scores((*prompt, *output)).best())
        return tuple(output)


def _spelled(
    after: dict[tuple[str, ...], dict[str, float]], text: str, most: int = 4
) -> tuple[list[str], int | None]:
    speller = Speller(cast(Any, _Model(after)), (0,), BAND)
    found = asyncio.run(speller.spell(text, most))
    return [WORDS[i] for i in found.ids], found.wrong_at


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ({"a": 0.0, "additional": NEAR}, ["additional", "b"]),
        ({"x": 0.0, "a": 0.02, "add": 0.03, "additional": NEAR}, ["additional", "b"]),
    ],
)
def test_a_near_tie_that_begins_the_right_one_is_given_up(
    first: dict[str, float], words: list[str]
) -> None:
    """The text goes on with "a" as well, and only "additional" leads to its end."""
    after = {(): first, ("a",): {"x": 0.0}, ("add",): {"x": 0.0}, ("additional",): {"b": 0.0}}
    assert _spelled(after, "additionalb") == (words, None)


def test_a_token_outside_the_band_is_no_way_to_spell() -> None:
    after = {(): {"a": 0.0, "additional": FAR}, ("a",): {"x": 0.0}}
    assert _spelled(after, "additional") == (["a"], 1)


def test_what_came_furthest_is_told() -> None:
    after = {(): {"a": 0.0, "add": NEAR}, ("a",): {"x": 0.0}, ("add",): {"x": 0.0}}
    assert _spelled(after, "additional") == (["add"], 3)


def test_the_first_and_likeliest_spelling_is_taken() -> None:
    assert _spelled({(): {"a": 0.0, "aa": NEAR}}, "aaa") == (["a", "a", "a"], None)


def test_too_many_tokens_are_no_spelling_where_fewer_will_do() -> None:
    words, wrong_at = _spelled({(): {"a": 0.0, "aa": NEAR}}, "aaaaa", most=3)
    assert wrong_at is None
    assert sorted(words) == ["a", "aa", "aa"]


def test_the_search_ends() -> None:
    """Every place of a long text forks, and none leads to its end."""
    model = _Model({(): {"a": 0.0, "aa": NEAR}})
    asked = 0

    async def counted() -> None:
        nonlocal asked
        async for found in Speller(cast(Any, model), (0,), BAND).spellings("a" * 40 + "b", 64):
            asked += 1
            assert found.wrong_at == 40

    asyncio.run(counted())
    assert asked == MOST_SPELLINGS
