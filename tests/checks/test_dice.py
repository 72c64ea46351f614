"""Draws of a dice probe are held to their odds: right ones pass, wrong ones do not."""

from __future__ import annotations

import random
from typing import cast

import pytest

from harness.checks.assertions import PropertyBroken
from harness.checks.context import CheckContext
from harness.checks.dice import (
    FALSE_ALARM_RATE,
    assert_fair,
    chi_square_chance,
    orders_of,
    uniform,
)


def _places(odds: list[float], drawn_by: list[float], count: int) -> list[float]:
    """``count`` draws by one set of odds, judged by another."""
    draw = random.Random(5)
    order, _ = orders_of(odds, ())
    tokens = draw.choices(range(len(odds)), drawn_by, k=count)
    return [uniform(odds, order, token, draw.random()) for token in tokens]


ODDS = [0.05, 0.4, 0.0, 0.25, 0.3]


def test_draws_with_the_right_odds_pass() -> None:
    assert chi_square_chance(_places(ODDS, ODDS, 400)) > 0.001


def test_draws_with_other_odds_do_not() -> None:
    flat = [0.25, 0.25, 0.0, 0.25, 0.25]
    assert chi_square_chance(_places(ODDS, flat, 400)) < FALSE_ALARM_RATE


class _Tally:
    """What `assert_fair` needs of a context: a place for evidence."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def evidence(self, name: str, value: float) -> None:
        self.seen[name] = self.seen.get(name, 0) + value


def test_the_assertion_accuses_wrong_odds_in_either_order_and_no_right_ones() -> None:
    """One order may look fair: the other must be enough."""
    right = _places(ODDS, ODDS, 400)
    wrong = _places(ODDS, [0.25, 0.25, 0.0, 0.25, 0.25], 400)
    context = _Tally()
    assert_fair(cast(CheckContext, context), list(zip(right, right, strict=True)), {}, "case0-0")
    assert context.seen == {"draws": 400}
    for draws in (zip(wrong, right, strict=True), zip(right, wrong, strict=True)):
        with pytest.raises(PropertyBroken, match="do not have the odds"):
            assert_fair(cast(CheckContext, _Tally()), list(draws), {}, "case0-0")


def test_the_orders_leave_out_what_cannot_be_drawn_and_know_what_was_said_last() -> None:
    likely, recent = orders_of(ODDS, [3, 0, 3, 2])
    assert likely == [1, 4, 3, 0]
    assert recent == [3, 0, 1, 4]


def test_a_draw_falls_between_the_odds_before_it_and_its_own() -> None:
    order, _ = orders_of(ODDS, ())
    assert uniform(ODDS, order, 1, 0.0) == 0.0
    assert uniform(ODDS, order, 4, 0.5) == pytest.approx(0.55)
    assert uniform(ODDS, order, 0, 1.0) == pytest.approx(1.0)
