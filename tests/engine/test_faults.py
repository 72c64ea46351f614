"""Every fault does something: it runs, and it changes an answer."""

from __future__ import annotations

import pytest

from reference_engine.engine import Engine, EngineConfig
from reference_engine.faults import FAULTS
from reference_engine.request import Request, SamplingParams
from reference_engine.solo import solo
from tests.engine.tiny import VOCAB, drain, tiny_model


def crowd() -> list[Request]:
    """Enough requests that pages, places and budget are all contended."""
    return [
        Request(
            f"r{i}",
            tuple(3 + (i * 37 + k * k * 5) % (VOCAB - 3) for k in range(5 + 9 * i)),
            SamplingParams(max_tokens=6 + i, ignore_eos=True),
        )
        for i in range(6)
    ]


ENGINE_FAULTS = sorted(
    name
    for name, fault in FAULTS.items()
    if not all(point.startswith("server_") for point in fault.hooks)
)


@pytest.mark.parametrize("name", ENGINE_FAULTS)
def test_fault_changes_an_answer(name: str) -> None:
    """With the fault on, it executes and some request differs from `solo`."""
    engine = Engine(tiny_model(), EngineConfig(token_budget=32, num_pages=64), FAULTS[name])
    answers = drain(engine, crowd())
    assert engine.fault_run is not None
    assert engine.fault_run.executions > 0, "the fault never ran"
    expected = {(r.request_id, 0): solo(tiny_model(), r)[0].token_ids for r in crowd()}
    got = {key: answer.token_ids for key, answer in answers.items()}
    assert got != expected, "the fault changed nothing"
