"""The sequential test of tie flips: calm counts pass, many more are refuted, at the stated rate."""

from __future__ import annotations

import math
import random

from harness.oracles.flips import FALSE_ALARM_RATE, CalmRate, FlipTest

CALM = CalmRate(flips=4, tokens=200)


def _counted(flips: int, tokens: int) -> dict[int, bool]:
    return {place: place < flips for place in range(tokens)}


def test_the_calm_rate_itself_is_never_refuted() -> None:
    test = FlipTest(CALM)
    assert not any(test.rejects(_counted(tokens // 50, tokens)) for tokens in range(1, 2000, 97))


def test_many_times_the_calm_rate_is_refuted_and_the_sentence_says_by_what() -> None:
    test = FlipTest(CALM)
    many = _counted(60, 150)
    assert test.rejects(many)
    assert "60 of 150 tokens" in test.accusation(many)
    assert "false-alarm rate 0.0001" in test.accusation(many)


def test_no_calm_flips_still_leave_room_for_a_few() -> None:
    test = FlipTest(CalmRate(0, 256))
    assert not test.rejects(_counted(2, 60))
    assert test.rejects(_counted(40, 60))


def test_a_server_at_the_bound_is_refuted_no_more_often_than_stated() -> None:
    """Looked at after every token, of 40 runs at the highest calm rate none may be accused."""
    test, drawn = FlipTest(CALM), random.Random(0)
    rate = CALM.bound
    accused = 0
    for _ in range(40):
        flips = 0
        for tokens in range(1, 201):
            flips += drawn.random() < rate
            if test.log_ratio(flips, tokens) >= math.log(2 / FALSE_ALARM_RATE):
                accused += 1
                break
    assert accused <= 40 * FALSE_ALARM_RATE + 1


def test_the_bound_covers_the_true_rate() -> None:
    assert CALM.bound > 4 / 200
    assert CalmRate(7, 7).bound == 1.0
