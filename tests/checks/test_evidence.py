"""Evidence: overlap is counted from times alone, and gauges are read in every known dialect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.coin import Coin, binomial_is_plausible
from harness.checks.draws import edges, prompt_lengths
from harness.checks.evidence import interleaved_pairs, peak_overlap
from harness.checks.gauges import Gauge, dialect_of, read_gauges
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk, Transcript


def _transcript(*spans: tuple[float, float]) -> Transcript:
    transcript = Transcript()
    for index, (first, last) in enumerate(spans):
        chunks = [TokenChunk(first, "a"), TokenChunk(last, "b")]
        key = f"r{index}"
        transcript.requests[key] = RequestTranscript(
            key, Ending.COMPLETE, 0.0, choices={0: ChoiceTranscript(chunks)}
        )
    return transcript


def test_streams_that_follow_each_other_do_not_overlap() -> None:
    assert interleaved_pairs(_transcript((0, 1), (1, 2), (3, 4))) == 0
    assert peak_overlap(_transcript((0, 1), (3, 4))) == 1


def test_streams_that_interleave_are_counted_in_pairs() -> None:
    transcript = _transcript((0, 3), (1, 4), (2, 5))
    assert interleaved_pairs(transcript) == 3
    assert peak_overlap(transcript) == 3


def test_an_answer_in_one_piece_shows_no_overlap() -> None:
    assert interleaved_pairs(_transcript((1, 1), (0, 3))) == 0


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("isobatch_num_requests_running", "isobatch"),
        ("vllm:num_requests_running", "vllm"),
        ("sglang:num_running_reqs", "sglang"),
        ("tgi_batch_current_size", "tgi"),
        ("llamacpp:requests_processing", "llama.cpp"),
    ],
)
def test_every_dialect_has_a_running_gauge(name: str, dialect: str) -> None:
    assert dialect_of({name: 3.0}) == dialect
    assert read_gauges({name: 3.0}) == {Gauge.RUNNING: 3.0}


def test_unknown_metrics_show_nothing() -> None:
    assert dialect_of({"process_cpu_seconds": 1.0}) is None
    assert read_gauges({"process_cpu_seconds": 1.0}) == {}


def test_edges_are_the_sizes_and_their_neighbours() -> None:
    assert edges([16], low=2, high=40) == [15, 16, 17, 31, 32, 33]
    assert edges([64], low=2, high=40) == [2]


@given(st.data(), st.integers(2, 30), st.integers(30, 600))
def test_drawn_lengths_stay_in_their_range(data: st.DataObject, low: int, high: int) -> None:
    assert low <= data.draw(prompt_lengths([16, 64], low=low, high=high)) <= high


def test_the_coin_is_fair_without_a_lead_and_its_test_rejects_a_bent_one() -> None:
    assert Coin.probability(0.0) == 0.5
    assert Coin.probability(1.2, 2.0) < Coin.probability(1.2) < Coin.probability(1.2, 0.5)
    assert binomial_is_plausible(96, 192, 0.5)
    assert not binomial_is_plausible(150, 192, 0.5)
