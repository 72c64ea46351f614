"""The self oracle: equal is exact, a small gap is a tie flip, a large one a divergence."""

from __future__ import annotations

import pytest

from harness.oracles.band import (
    BAND_CAP,
    BAND_FLOOR,
    Band,
    compare_answers,
    gap_at_first_difference,
    noise,
)
from harness.oracles.oracle import Agreement
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk

BF16 = Band(alone=0.0, together=0.06, texts_differed=1, compared=12)
SILENT_STEADY = Band(None, None, 0, 12)
SILENT_UNSTEADY = Band(None, None, 2, 12)


def _answer(*tops: dict[str, float], ending: Ending = Ending.COMPLETE) -> RequestTranscript:
    """An answer whose tokens are the best of each position."""
    chunks = []
    for place, top in enumerate(tops):
        best = max(top, key=lambda name: top[name])
        chunks.append(TokenChunk(float(place), best, None, (top[best],), (top,)))
    return RequestTranscript("r", ending, 0.0, choices={0: ChoiceTranscript(chunks, ["length"])})


ALONE = _answer({"a": -0.1, "b": -3.0}, {"c": -0.70, "d": -0.72}, {"e": -0.2, "f": -4.0})


def test_equal_is_exact() -> None:
    judgement = compare_answers(ALONE, ALONE, BF16)
    assert judgement is not None
    assert judgement.agreement is Agreement.EXACT


def test_a_swap_of_two_close_tokens_is_a_tie_flip() -> None:
    flipped = _answer({"a": -0.1, "b": -3.0}, {"d": -0.70, "c": -0.71}, {"g": -0.1})
    judgement = compare_answers(ALONE, flipped, BF16)
    assert judgement is not None
    assert judgement.agreement is Agreement.TIE_FLIP
    assert judgement.gap == pytest.approx(0.02)
    assert judgement.first_difference == 1


def test_a_token_far_behind_is_a_divergence() -> None:
    wrong = _answer({"b": -0.1, "a": -3.0}, {"c": -0.7})
    judgement = compare_answers(ALONE, wrong, BF16)
    assert judgement is not None
    assert judgement.agreement is Agreement.DIVERGENCE


def test_a_token_that_is_not_among_the_best_is_never_a_tie() -> None:
    wrong = _answer({"a": -0.1}, {"z": -0.1})
    assert (gap_at_first_difference(ALONE, wrong) or 0) > BAND_CAP
    loosest = Band(alone=9.0, together=9.0, texts_differed=12, compared=12)
    judgement = compare_answers(ALONE, wrong, loosest)
    assert judgement is not None
    assert judgement.agreement is Agreement.DIVERGENCE


def test_an_answer_cut_short_is_a_divergence() -> None:
    judgement = compare_answers(ALONE, _answer({"a": -0.1}, {"c": -0.7}), BF16)
    assert judgement is not None
    assert judgement.agreement is Agreement.DIVERGENCE


def test_a_client_that_hung_up_is_held_to_what_it_got() -> None:
    cut = _answer({"a": -0.1}, {"c": -0.7}, ending=Ending.CANCELLED)
    judgement = compare_answers(ALONE, cut, BF16)
    assert judgement is not None
    assert judgement.agreement is Agreement.EXACT


def test_without_logprobs_only_a_steady_server_is_judged() -> None:
    wrong = _answer({"b": -0.1}, {"c": -0.7})
    steady = compare_answers(ALONE, wrong, SILENT_STEADY)
    assert steady is not None
    assert steady.agreement is Agreement.DIVERGENCE
    assert compare_answers(ALONE, wrong, SILENT_UNSTEADY) is None


def test_the_band_has_a_floor_and_a_cap() -> None:
    assert Band(0.0, 0.0, 0, 12).granted == BAND_FLOOR
    assert Band(3.0, 5.0, 0, 12).granted == BAND_CAP
    assert BF16.granted == pytest.approx(0.12)


def test_a_tie_is_told_by_text_where_the_other_answer_has_no_logprobs() -> None:
    silent = RequestTranscript("r", Ending.COMPLETE, 0.0)
    silent.choices[0] = ChoiceTranscript([TokenChunk(0.0, "adx")], ["length"])
    judgement = compare_answers(ALONE, silent, BF16)
    assert judgement is not None
    assert judgement.agreement is Agreement.TIE_FLIP
    assert judgement.gap == pytest.approx(0.02)
    silent.choices[0] = ChoiceTranscript([TokenChunk(0.0, "bxx")], ["length"])
    wrong = compare_answers(ALONE, silent, BF16)
    assert wrong is not None
    assert wrong.agreement is Agreement.DIVERGENCE


def test_a_move_far_beyond_the_others_is_not_part_of_the_band() -> None:
    assert noise([0.01, 0.02, 0.015, 3.0]) == 0.02
    assert noise([]) == 0.0
