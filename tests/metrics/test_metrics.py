"""The definitions, on transcripts whose numbers can be done in the head."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics import DEFINITIONS, Slo, metric_rows, samples
from harness.metrics.ledger import TokenLedger
from harness.metrics.quantile import quantile, samples_needed
from harness.metrics.request_row import from_row, to_row
from harness.metrics.window import flow, steady_window
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk, Usage


def made(
    key: str = "a",
    *,
    due: float = 0.0,
    sent: float = 0.5,
    times: tuple[float, ...] = (1.5, 2.0, 3.0),
    tokens: tuple[int | None, ...] | None = None,
    usage: Usage | None = None,
    ending: Ending = Ending.COMPLETE,
) -> RequestTranscript:
    counts = tokens if tokens is not None else (1,) * len(times)
    chunks = [TokenChunk(t, "x", tokens=n) for t, n in zip(times, counts, strict=True)]
    request = RequestTranscript(key, ending, due, sent, times[-1] if times else sent)
    if chunks:
        request.choices[0] = ChoiceTranscript(chunks, ["length"])
    request.usage = usage
    return request


def value(rows, metric_id: str, statistic: str = "value", window: str | None = "whole"):
    [row] = [
        r for r in rows if (r["id"], r["statistic"], r["window"]) == (metric_id, statistic, window)
    ]
    return row["value"]


def test_each_latency_is_what_its_definition_says():
    found = samples([made(usage=Usage(10, 5))])
    assert found["ttft.response"] == [1.5]
    assert found["ttft.service"] == [1.0]
    assert found["tpot"] == [1.5 / 4], "n is the server's count, not the number of chunks"
    assert found["chunk_gap"] == [0.5, 1.0]
    assert found["e2e.response"] == [3.0]
    assert found["e2e.service"] == [2.5]
    assert found["send_lag"] == [0.5]
    assert found["connect"] == []


def test_itl_divides_by_the_tokens_of_the_later_chunk_where_they_are_told():
    assert samples([made(tokens=(1, 2, 4))])["itl"] == [0.25, 0.25]
    assert samples([made(tokens=(1, None, 4))])["itl"] == [0.25]
    assert samples([made(tokens=(None, None, None))])["itl"] == []


@pytest.mark.parametrize("usage", [None, Usage(3, 1)])
def test_tpot_is_undefined_for_one_token_or_an_unknown_count(usage: Usage | None):
    assert samples([made(tokens=(None,) * 3, usage=usage)])["tpot"] == []


def test_failed_requests_give_no_latencies_but_stay_counted():
    broken = made("b", ending=Ending.DISCONNECTED)
    gone = made("c", ending=Ending.CANCELLED)
    rows = metric_rows([made(), broken, gone], objectives=(Slo("e2e.response", 10.0),))
    assert value(rows, "ttft.response", "mean") == 1.5
    assert value(rows, "requests.attempted", window=None) == 2
    assert value(rows, "requests.failed", window=None) == 1
    assert value(rows, "goodput", window=None) == 0.5


def test_goodput_counts_requests_that_met_every_objective():
    fast, slow = made(), made("b", times=(1.5, 2.0, 9.0))
    objectives = (Slo.parse("ttft.response=1.5"), Slo.parse("e2e.response=3"))
    rows = metric_rows([fast, slow], objectives=objectives)
    assert value(rows, "goodput", window=None) == 0.5


@pytest.mark.parametrize("text", ["ttft.response", "colour=1", "chunk_gap=1", "tpot=fast"])
def test_a_bad_objective_is_refused(text: str):
    with pytest.raises(ValueError, match="objective"):
        Slo.parse(text)


def test_undefined_is_none_and_never_zero():
    rows = metric_rows([made(ending=Ending.TIMEOUT, times=())])
    for row in rows:
        if row["id"] in ("ttft.response", "tpot", "chunk_gap", "tokens.server"):
            assert row["value"] is None, row


def test_three_ledgers_are_kept_apart_and_a_mismatch_is_flagged():
    request = made(tokens=(1, 2, 1), usage=Usage(5, 4))
    request.text_tokens = 3
    assert TokenLedger.of(request) == TokenLedger(4, 4, 3, 3)
    assert TokenLedger.of(request).agrees, "the end-of-sequence token has no text"
    request.usage = Usage(5, 5)
    assert not TokenLedger.of(request).agrees
    assert value(metric_rows([request]), "tokens.mismatched_requests", window=None) == 1
    assert TokenLedger.of(request).output_tokens == 5, "the headline is the server's"


def test_without_a_count_by_anyone_there_is_no_token_throughput():
    rows = metric_rows([made(tokens=(None,) * 3)])
    assert value(rows, "throughput.output") is None
    assert value(rows, "throughput.requests") == pytest.approx(1 / 2.5)


def test_throughput_of_the_whole_run():
    rows = metric_rows([made(usage=Usage(7, 3))])
    assert value(rows, "throughput.output") == pytest.approx(3 / 2.5)
    assert value(rows, "throughput.total") == pytest.approx(10 / 2.5)


def test_the_steady_window_is_from_the_first_end_to_the_last_send():
    early, late = made(), made("b", due=4.0, sent=4.0, times=(5.0, 6.0))
    window = steady_window([early, late])
    assert window is not None
    assert (window.start_s, window.end_s) == (3.0, 4.0)
    assert steady_window([early]) is None
    middle = made("m", sent=0.5, times=(2.5, 3.5, 4.5))
    assert flow([middle], window).output_tokens == 1.0


def test_tokens_of_a_request_without_counts_per_chunk_are_spread_over_its_chunks():
    request = made(tokens=(None,) * 3, usage=Usage(1, 9), times=(1.0, 3.5, 5.0))
    window = steady_window([made(), made("b", sent=4.0, times=(5.0,))])
    assert window is not None
    assert flow([request], window).output_tokens == 3.0


@pytest.mark.parametrize(
    ("q", "n"), [(0.5, 5), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995), (0.1, 29)]
)
def test_how_many_samples_a_quantile_needs(q: float, n: int):
    assert samples_needed(q) == n
    assert quantile([1.0] * (n - 1), q) is None
    assert quantile([1.0] * n, q) is not None


@settings(max_examples=30)
@given(st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.integers(0, 10_000))
def test_a_quantile_is_a_measured_value_between_its_bounds(q: float, seed: int):
    rng = random.Random(seed)
    values = sorted(rng.expovariate(1) for _ in range(rng.randint(300, 800)))
    found = quantile(values, q)
    assert found is not None
    assert found.value in values
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_each_bound_covers_the_true_quantile_as_often_as_it_says(q: float):
    rng = random.Random(7)
    trials, over, under = 2000, 0, 0
    for _ in range(trials):
        found = quantile(sorted(rng.random() for _ in range(400)), q)
        assert found is not None
        over += found.high >= q
        under += found.low <= q
    # Binomial(2000, 0.95) lies above 1860 with probability 0.99997.
    assert over > 1860, f"upper bound held in {over} of {trials}"
    assert under > 1860, f"lower bound held in {under} of {trials}"


def test_rows_survive_json_and_give_the_same_metrics():
    requests = [
        made(
            f"r{i}", due=i / 7, sent=i / 7 + 0.001, times=(i / 7 + 0.1, i / 7 + 1 / 3, i / 7 + 0.9)
        )
        for i in range(40)
    ]
    requests[3].ending = Ending.TIMEOUT
    requests[4].usage = Usage(3, 3, 1)
    again = [from_row(json.loads(json.dumps(to_row(r)))) for r in requests]
    assert metric_rows(again) == metric_rows(requests)


@pytest.mark.parametrize("row", [{}, {"key": "a", "ending": "happy", "t_due_s": 0}])
def test_a_bad_row_is_refused(row: dict[str, object]):
    with pytest.raises(ValueError, match="not a request row"):
        from_row(row)


def test_every_row_names_a_definition():
    for row in metric_rows([made()], objectives=(Slo("tpot", 1.0),)):
        assert row["unit"] == DEFINITIONS[row["id"]].unit
