"""The contract: whatever the schedule, the engine's bits are those of `solo`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Completion, FinishReason, Request, SamplingParams, TokenEvent
from reference_engine.solo import solo
from tests.engine.families import FAMILIES, exact
from tests.engine.tiny import VOCAB, collect, tiny_llama, tiny_model

EDGES = st.sampled_from([1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 70])
PAGE_SIZES = (1, 8, 16, 32, 64, 256)
GOES_ON: dict[str, Any] = {"max_tokens": 24, "min_tokens": 24, "stop_token_ids": ()}
ALL_FAMILIES = ("grouped-llama", *FAMILIES)


@dataclass(frozen=True)
class Run:
    """A ragged workload, the engine it runs on, when requests arrive and when one is cancelled.

    ``gaps``: steps before each arrival. ``cancel``: after this many steps of the last arrival the
    first request is cancelled; None: nobody is. ``threads``: what the engine computes with; `solo`
    always has one.
    """

    family: str
    threads: int
    config: EngineConfig
    requests: tuple[Request, ...]
    gaps: tuple[int, ...]
    cancel: int | None


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    """Ragged prompts of which many begin alike."""
    shared = tuple(range(3, 3 + draw(st.sampled_from([0, 0, 8, 16, 32, 48]))))
    seed, length = draw(st.integers(0, 3)), draw(EDGES)
    return shared + tuple(3 + (seed * 31 + i * i * 7) % (VOCAB - 3) for i in range(length))


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    tokens = draw(st.sampled_from([1, 2, 3, 5, 24]))
    return SamplingParams(
        max_tokens=tokens,
        min_tokens=draw(st.sampled_from([0, 0, tokens])),
        temperature=draw(st.sampled_from([0.0, 0.0, 0.7, 1.5])),
        top_p=draw(st.sampled_from([1.0, 0.8])),
        top_k=draw(st.sampled_from([0, 20])),
        min_p=draw(st.sampled_from([0.0, 0.02])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.3])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.0, 0.5])),
        logit_bias=draw(st.sampled_from([{}, {}, {2: 6.0, 40: -3.0}])),
        stop_token_ids=draw(st.sampled_from([(), (40, 41)])),
        seed=draw(st.integers(0, 3)),
        n=draw(st.sampled_from([1, 1, 1, 2])),
        logprobs=draw(st.sampled_from([None, 0, 2])),
        prompt_logprobs=draw(st.sampled_from([None, None, None, 1])),
    )


@st.composite
def requests(draw: st.DrawFn, index: int) -> Request:
    salt = draw(st.sampled_from([None, None, None, "salt"]))
    priority = draw(st.sampled_from([0, 0, 0, 1]))
    return Request(f"r{index}", draw(prompts()), draw(params()), salt, priority)


@st.composite
def runs(draw: st.DrawFn, family: str) -> Run:
    crowded = draw(st.sampled_from([True, False, False]))
    chosen = tuple(draw(requests(i)) for i in range(draw(st.integers(3 if crowded else 1, 5))))
    if crowded:  # all go on together, in small pages and a pool that not all fit in to their ends
        chosen = tuple(replace(r, params=replace(r.params, **GOES_ON)) for r in chosen)
    page_size = draw(st.sampled_from(PAGE_SIZES[:2] if crowded else PAGE_SIZES))
    longest = max(len(r.prompt_ids) + r.params.max_tokens - 1 for r in chosen)
    smallest_pool = -(-longest // page_size)
    config = EngineConfig(
        page_size=page_size,
        num_pages=1
        + smallest_pool
        + draw(st.sampled_from([0, 1, 3] if crowded else [0, 1, 3, smallest_pool, 400])),
        token_budget=draw(st.sampled_from([1] if len(chosen) == 1 else [5, 16, 64, 256])),
        max_num_seqs=draw(st.sampled_from([4, 16] if crowded else [1, 2, 4, 16])),
        poison_freed_pages=True,
    )
    gaps = tuple(draw(st.lists(st.integers(0, 4), min_size=len(chosen), max_size=len(chosen))))
    threads = draw(st.sampled_from([1, 1, 1, 2]))
    return Run(family, threads, config, chosen, gaps, draw(st.sampled_from([None, None, 0, 3])))


def model_of(family: str) -> LoadedModel:
    return tiny_model() if family == "grouped-llama" else exact(family)


def execute(run: Run) -> tuple[Engine, list[TokenEvent]]:
    before = torch.get_num_threads()
    torch.set_num_threads(run.threads)
    try:
        return serve(run)
    finally:
        torch.set_num_threads(before)


def serve(run: Run) -> tuple[Engine, list[TokenEvent]]:
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


def assert_is_solo(got: Completion, expected: Completion) -> None:
    """Equal in every bit; a cancelled answer is equal as far as it goes."""
    if got.finish_reason is FinishReason.CANCELLED:
        length = len(got.token_ids)
        scores = expected.logprobs[:length]
        expected = replace(expected, token_ids=expected.token_ids[:length], logprobs=scores)
        expected = replace(expected, finish_reason=got.finish_reason)
        if not length:
            expected = replace(expected, prompt_logprobs=None)
    assert got == expected, f"{got.request_id} choice {got.choice} differs"


def assert_exact(run: Run) -> Counter[str]:
    """Hold every answer of the run to `solo`; returns what happened in it."""
    engine, events = execute(run)
    answers = collect(events)
    for request in run.requests:
        for expected in solo(model_of(run.family), request):
            assert_is_solo(answers[request.request_id, expected.choice], expected)
    stats = engine.stats()
    assert stats.pages_used == 0, f"{stats.pages_used} pages are still held"
    assert stats.pages_free + stats.pages_cached == stats.pages_total
    return Counter(
        examples=1,
        preemptions=stats.preemptions_total,
        hits=stats.prefix_hits_total,
        evictions=stats.prefix_evictions_total,
        cancels=stats.cancelled_total,
        chunks=stats.prefill_chunks_total - stats.requests_total,
        two_threads=run.threads - 1,
    )


def assert_happened(seen: Counter[str], where: str | None) -> None:
    """The examples were not all easy; ``where`` is None when there were too few to ask."""
    for what in ("preemptions", "hits", "evictions", "cancels", "chunks", "two_threads"):
        assert where is None or seen[what] > 0, f"no {what} in the examples of {where}: {seen}"


def checker(family: str, examples: int, happened: Counter[str]) -> Callable[[], None]:
    """Holds so many drawn runs of a family to `solo` and adds up what happened in them."""

    def check(run: Run) -> None:
        happened.update(assert_exact(run))

    test = settings(max_examples=examples)(given(run=runs(family))(check))
    # Without it every family would be given the same runs by a profile that replays.
    return seed(ALL_FAMILIES.index(family))(test) if settings.default.derandomize else test


@pytest.mark.timeout(7200)
def test_engine_equals_solo_bit_for_bit() -> None:
    """Ids, logprobs, prompt logprobs and endings of every choice are those of `solo`.

    And the examples were not all easy: the counters say what happened in them.
    """
    examples = -(-settings.default.max_examples // len(ALL_FAMILIES))
    happened: Counter[str] = Counter()
    for family in ALL_FAMILIES:
        on_family: Counter[str] = Counter()

        checker(family, examples, on_family)()
        print(family, dict(on_family))
        assert_happened(on_family, family if examples >= 100 else None)
        happened += on_family
    assert_happened(happened, "every family")


@pytest.mark.slow
def test_two_threads_and_a_new_process_give_the_same_bits() -> None:
    """Nothing depends on the number of threads, on the process, or on Python's hash seed."""
    import subprocess
    import sys

    digests = set()
    for threads, hash_seed in ((1, "1"), (2, "2"), (2, "3")):
        result = subprocess.run(
            [sys.executable, "-m", "tests.engine.digest", str(threads)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "HF_HUB_OFFLINE": "1", "PATH": ""},
        )
        digests.add(result.stdout.strip())
    assert len(digests) == 1, digests


def test_solo_equals_transformers_generate() -> None:
    """`solo` agrees with the model's own implementation: ids equal, logprobs within 1e-4."""
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
