"""Drawn workloads on one way of running the engine, each answer held to `solo`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Request, SamplingParams, TokenEvent
from reference_engine.solo import solo
from tests.engine.families import exact
from tests.engine.test_exactness import assert_is_solo, requests
from tests.engine.tiny import collect, tiny_model

FAMILIES = ("grouped-llama", "grouped-llama", "mistral-window", "gemma2", "mixtral")


@dataclass(frozen=True)
class DrawnRun:
    """Requests, the steps before each arrives, and after how many more the first is cancelled."""

    family: str
    config: EngineConfig
    requests: tuple[Request, ...]
    gaps: tuple[int, ...]
    cancel: int | None


@st.composite
def drawn_runs(draw: st.DrawFn, options: dict[str, Any]) -> DrawnRun:
    """From the smallest pool that works to plenty; ``options`` are fields of the configuration."""
    chosen = tuple(draw(requests(index)) for index in range(draw(st.sampled_from([1, 3, 4, 5]))))
    size = draw(st.sampled_from([1, 8, 16, 64]))
    longest = max(len(r.prompt_ids) + r.params.max_tokens - 1 for r in chosen)
    smallest = -(-longest // size)
    config = EngineConfig(
        page_size=size,
        num_pages=1 + smallest + draw(st.sampled_from([0, 0, 1, 3, 400])),
        token_budget=draw(st.sampled_from([16, 64, 256])),
        max_num_seqs=draw(st.sampled_from([2, 4, 4, 16])),
        poison_freed_pages=True,
        **options,
    )
    gaps = tuple(draw(st.integers(0, 4)) for _ in chosen)
    cancel = draw(st.sampled_from([None, None, 0, 1, 3]))
    return DrawnRun(draw(st.sampled_from(FAMILIES)), config, chosen, gaps, cancel)


def model_of(family: str) -> LoadedModel:
    return tiny_model() if family == "grouped-llama" else exact(family)


def execute(run: DrawnRun) -> tuple[Engine, list[TokenEvent]]:
    engine = Engine(model_of(run.family), run.config)
    events: list[TokenEvent] = []
    for request, gap in zip(run.requests, run.gaps, strict=True):
        for _ in range(gap):
            events += engine.step()
        engine.submit(request)
    if run.cancel is not None:
        for _ in range(run.cancel):
            events += engine.step()
        engine.cancel(run.requests[0].request_id)
    while engine.has_work:
        events += engine.step()
    return engine, events


def crowded_run(**options: Any) -> DrawnRun:
    """A fixed run in which requests share a prefix, push each other out, and one is cancelled."""
    config = EngineConfig(
        page_size=4, num_pages=14, token_budget=16, max_num_seqs=4, poison_freed_pages=True
    )
    shared = tuple(range(3, 12))
    chosen = tuple(
        Request(
            f"r{i}",
            shared + tuple(20 + (i * 31 + j * j * 7) % 100 for j in range(3 + 5 * i)),
            SamplingParams(
                max_tokens=12,
                logprobs=1,
                stop_token_ids=tuple(range(40, 56)) if i else (),
                n=1 + i % 2,
            ),
        )
        for i in range(5)
    )
    return DrawnRun("grouped-llama", replace(config, **options), chosen, (0, 0, 3, 0, 1), 2)


def assert_solo(run: DrawnRun) -> Counter[str]:
    """Every answer of the run bit for bit; returns the engine's counters."""
    engine, events = execute(run)
    answers = collect(events)
    for request in run.requests:
        for expected in solo(model_of(run.family), request):
            assert_is_solo(answers[request.request_id, expected.choice], expected)
    stats = engine.stats()
    assert stats.pages_used == 0, f"{stats.pages_used} pages are still held"
    assert stats.pages_free + stats.pages_cached == stats.pages_total
    return Counter({k: int(v) for k, v in stats.as_dict().items() if k.endswith("_total")})


def assert_drawn_runs_are_solo(max_examples: int, **options: Any) -> Counter[str]:
    """Ids, logprobs and endings bit for bit; returns the sum of the engines' counters."""
    happened: Counter[str] = Counter()

    @settings(max_examples=max_examples)
    @given(drawn_runs(options))
    def check(run: DrawnRun) -> None:
        happened.update(assert_solo(run))

    check()
    return happened


def assert_happened(happened: Counter[str], *names: str) -> None:
    for name in names:
        assert happened[f"{name}_total"] > 0, f"no {name} in any example: {dict(happened)}"
