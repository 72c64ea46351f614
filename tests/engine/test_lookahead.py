"""Overlap: steps are planned on tokens that nobody knows yet, and no bit moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reference_engine.engine import Engine, EngineConfig
from reference_engine.request import FinishReason, Request, SamplingParams, TokenEvent
from reference_engine.solo import solo
from tests.engine.tiny import VOCAB, collect, drain, tiny_model
from tests.gpu.drawn import (
    assert_drawn_runs_are_solo,
    assert_happened,
    assert_solo,
    crowded_run,
)

HARD = ("preemptions", "prefix_hits", "cancelled", "overlapped_steps", "overlap_dropped")


def test_overlap_holds_the_contract_in_a_crowd() -> None:
    """Preemption, prefix hits, forks, stop tokens and a cancel, all while steps are planned ahead.

    Whether a step is still running when the next is planned is up to the threads: it is counted
    over several runs.
    """
    happened = assert_solo(crowded_run(overlap=True))
    for _ in range(3):
        happened += assert_solo(crowded_run(overlap=True))
    assert_happened(happened, *HARD)


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [False, True])
def test_overlap_holds_the_contract_in_drawn_runs(graphs: bool) -> None:
    """Ids, logprobs and endings bit for bit, in drawn workloads, with decode graphs and without."""
    assert_happened(assert_drawn_runs_are_solo(60, overlap=True, decode_graphs=graphs), *HARD)


def _request(name: str, length: int, **params: object) -> Request:
    ids = tuple(3 + (length * 31 + j * j * 7) % (VOCAB - 3) for j in range(length))
    return Request(name, ids, SamplingParams(**params))  # type: ignore[arg-type]


CONFIG = EngineConfig(page_size=4, num_pages=60, token_budget=32, overlap=True)


def test_a_cancel_while_the_step_runs_drops_its_token_and_nobody_else_s() -> None:
    """Also when a new request of the same name comes before the step ends."""
    engine = Engine(tiny_model(), CONFIG)
    kept = _request("kept", 9, max_tokens=8, logprobs=1, ignore_eos=True)
    again = _request("gone", 5, max_tokens=3, logprobs=1, ignore_eos=True)
    engine.submit(kept)
    engine.submit(_request("gone", 12, max_tokens=8, ignore_eos=True))
    events: list[TokenEvent] = []
    for _ in range(3):
        events += engine.step()
    assert engine._lookahead is not None
    assert engine._lookahead.in_flight is not None, "a step runs between calls"
    assert engine.cancel("gone")
    engine.submit(again)
    while engine.has_work:
        events += engine.step()
    mine = [e for e in events if e.request_id == "gone"]
    cut = next(i for i, e in enumerate(mine) if e.finish_reason is FinishReason.CANCELLED)
    assert collect(mine[cut + 1 :])["gone", 0] == solo(tiny_model(), again)[0]
    assert (
        collect([e for e in events if e.request_id == "kept"])["kept", 0]
        == (solo(tiny_model(), kept)[0])
    )
    assert engine.stats().pages_used == 0


def test_an_answer_that_ends_on_a_stop_token_is_dropped_from_the_plan() -> None:
    request = _request("a", 7, max_tokens=12, ignore_eos=True)
    [whole] = solo(tiny_model(), request)
    stop = whole.token_ids[3]
    first = whole.token_ids.index(stop)
    stopped = replace(request, params=replace(request.params, stop_token_ids=(stop,)))
    engine = Engine(tiny_model(), CONFIG)
    got = drain(engine, [stopped])["a", 0]
    assert got.token_ids == whole.token_ids[: first + 1]
    assert engine.stats().overlap_dropped_total == 1
    assert engine.stats().decode_tokens_total == first, "a token was computed after the end"


def test_nothing_is_planned_past_max_tokens() -> None:
    engine = Engine(tiny_model(), CONFIG)
    drain(engine, [_request(f"r{i}", 3 + i, max_tokens=1 + i, ignore_eos=True) for i in range(5)])
    assert engine.stats().overlap_dropped_total == 0


def test_a_step_that_fails_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(tiny_model(), CONFIG)
    assert engine._lookahead is not None

    def broken(_: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(engine._lookahead, "_run", broken)
    engine.submit(_request("a", 5, max_tokens=4))
    with pytest.raises(RuntimeError, match="the device is gone"):
        engine.step()


def test_overlap_is_off_unless_asked_for_and_under_a_fault() -> None:
    from reference_engine.faults import FAULTS

    assert Engine(tiny_model())._lookahead is None
    fault = next(iter(FAULTS.values()))
    engine = Engine(tiny_model(), replace(CONFIG, decode_graphs=True), fault=fault)
    assert engine._lookahead is None
    assert engine._graphs is None
