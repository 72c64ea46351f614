"""The coin that a logit bias makes of a greedy model."""

from __future__ import annotations

import pytest

from harness.checks.coin import Coin


@pytest.mark.parametrize(
    ("text", "finish_reasons", "outweighed"),
    [
        ("", ["stop"], True),
        ("", ["length"], False),
        ("", [], False),
        ("?", ["stop"], False),
    ],
)
def test_only_an_ending_before_any_flip_excuses_an_empty_answer(
    text: str, finish_reasons: list[str], outweighed: bool
) -> None:
    """A probe's ending leads its other answers by more than the largest bias makes up for."""
    assert Coin(3, "?", 48.0).outweighed(text, finish_reasons) is outweighed
