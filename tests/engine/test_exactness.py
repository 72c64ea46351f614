"""The contract: whatever the schedule, the engine's bits are those of `solo`."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from reference_engine.engine import Engine, EngineConfig
from reference_engine.request import Request, SamplingParams, TokenEvent
from reference_engine.solo import solo
from tests.engine.tiny import VOCAB, collect, drain, tiny_llama, tiny_model

EDGES = st.sampled_from([1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 70])


@dataclass(frozen=True)
class Run:
    """A ragged workload, the engine it runs on, and how many steps pass before each arrival."""

    config: EngineConfig
    requests: tuple[Request, ...]
    gaps: tuple[int, ...]


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    """Ragged prompts of which many begin alike."""
    shared = tuple(range(3, 3 + draw(st.sampled_from([0, 0, 8, 16, 32, 48]))))
    seed, length = draw(st.integers(0, 9)), draw(EDGES)
    return shared + tuple(3 + (seed * 31 + i * i * 7) % (VOCAB - 3) for i in range(length))


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    return SamplingParams(
        max_tokens=draw(st.integers(1, 7)),
        temperature=draw(st.sampled_from([0.0, 0.0, 0.7, 1.5])),
        top_p=draw(st.sampled_from([1.0, 0.8])),
        top_k=draw(st.sampled_from([0, 20])),
        seed=draw(st.integers(0, 3)),
        n=draw(st.sampled_from([1, 1, 1, 2])),
        logprobs=draw(st.sampled_from([0, 2])),
        prompt_logprobs=draw(st.sampled_from([None, None, 1])),
    )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    chosen = draw(st.lists(st.tuples(prompts(), params()), min_size=1, max_size=5))
    requests = tuple(Request(f"r{i}", ids, p) for i, (ids, p) in enumerate(chosen))
    page_size = draw(st.sampled_from([1, 8, 16, 32, 64, 256]))
    longest = max(len(r.prompt_ids) + r.params.max_tokens - 1 for r in requests)
    smallest_pool = -(-longest // page_size)
    config = EngineConfig(
        page_size=page_size,
        num_pages=1 + smallest_pool + draw(st.sampled_from([0, 1, 2, smallest_pool, 400])),
        token_budget=draw(st.sampled_from([1] if len(requests) == 1 else [5, 16, 64, 256])),
        max_num_seqs=draw(st.sampled_from([1, 2, 4, 16])),
        poison_freed_pages=True,
    )
    gaps = tuple(draw(st.lists(st.integers(0, 4), min_size=len(requests), max_size=len(requests))))
    return Run(config, requests, gaps)


def execute(run: Run) -> tuple[Engine, list[TokenEvent]]:
    engine = Engine(tiny_model(), run.config)
    events: list[TokenEvent] = []
    for request, gap in zip(run.requests, run.gaps, strict=True):
        for _ in range(gap):
            events += engine.step()
        engine.submit(request)
    while engine.has_work:
        events += engine.step()
    return engine, events


@given(runs())
def test_engine_equals_solo_bit_for_bit(run: Run) -> None:
    """Ids, logprobs, prompt logprobs and endings of every choice are those of `solo`."""
    engine, events = execute(run)
    answers = collect(events)
    for request in run.requests:
        for expected in solo(tiny_model(), request):
            got = answers[request.request_id, expected.choice]
            assert got == expected, f"{request.request_id} choice {expected.choice} differs"
    stats = engine.stats()
    assert stats.pages_used == 0, f"{stats.pages_used} pages are still held"
    assert stats.pages_free + stats.pages_cached == stats.pages_total


def test_solo_equals_transformers_generate() -> None:
    """`solo` agrees with the model's own implementation: ids equal, logprobs within 1e-4."""
    import torch

    for length in (1, 16, 63, 64, 65, 200):
        ids = tuple(3 + (i * i * 11 + length) % (VOCAB - 3) for i in range(length))
        [ours] = solo(tiny_model(), Request("a", ids, SamplingParams(max_tokens=12, logprobs=0)))
        theirs = tiny_llama().generate(
            torch.tensor([ids]),
            max_new_tokens=12,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        assert tuple(theirs.sequences[0, length:].tolist()) == ours.token_ids
        for logits, score in zip(theirs.logits, ours.logprobs, strict=True):
            other = torch.log_softmax(logits[0].float(), -1)[score.token_id]
            assert abs(float(other) - score.logprob) < 1e-4


def test_a_refused_request_leaves_the_others_alone() -> None:
    """Bad requests raise with the field's name; what is running goes on."""
    import pytest

    from reference_engine.request import RequestRefused

    engine = Engine(tiny_model(), EngineConfig(num_pages=9, page_size=8))
    good = Request("good", (5, 6, 7), SamplingParams(max_tokens=3))
    engine.submit(good)
    engine.step()
    for bad, field in [
        (Request("good", (5,)), "request_id"),
        (Request("a", ()), "prompt_ids"),
        (Request("a", (VOCAB,)), "prompt_ids"),
        (Request("a", tuple([5] * 700)), "prompt_ids"),
        (Request("a", tuple([5] * 100)), "prompt_ids"),  # does not fit the pool
        (Request("a", (5,), SamplingParams(max_tokens=100)), "max_tokens"),
        (Request("a", (5,), SamplingParams(temperature=-1.0)), "temperature"),
        (Request("a", (5,), SamplingParams(logit_bias={VOCAB: 1.0})), "logit_bias"),
    ]:
        with pytest.raises(RequestRefused) as refusal:
            engine.submit(bad)
        assert refusal.value.field == field, str(refusal.value)
    answers = drain(engine)
    assert set(answers) == {("good", 0)}
