"""What the engine refuses, cancels and counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reference_engine.engine import Engine, EngineConfig
from reference_engine.request import FinishReason, Request, RequestRefused, SamplingParams
from reference_engine.solo import solo
from tests.engine.tiny import VOCAB, collect, drain, tiny_model


def test_the_stated_limit_is_what_the_cache_can_just_hold() -> None:
    """The last token of an answer needs no room; a larger cache is bounded by the context."""
    engine = Engine(tiny_model(), EngineConfig(num_pages=9, page_size=8))
    most = engine.max_request_tokens
    assert most == 8 * 8 + 1
    engine.submit(Request("fits", tuple([5] * (most - 1)), SamplingParams(max_tokens=1)))
    with pytest.raises(RequestRefused, match="more than the cache"):
        engine.submit(Request("over", tuple([5] * most), SamplingParams(max_tokens=1)))
    large = Engine(tiny_model(), EngineConfig())
    assert large.max_request_tokens == large.model.max_context_tokens


def test_a_refused_request_leaves_the_others_alone() -> None:
    """Bad requests raise with the field's name; what is running goes on."""
    engine = Engine(tiny_model(), EngineConfig(num_pages=9, page_size=8))
    good = Request("good", (5, 6, 7), SamplingParams(max_tokens=3))
    engine.submit(good)
    engine.step()
    for bad, field in [
        (Request("good", (5,)), "request_id"),
        (Request("a", ()), "prompt_ids"),
        (Request("a", (VOCAB,)), "prompt_ids"),
        (Request("a", (-1,)), "prompt_ids"),
        (Request("a", tuple([5] * 700)), "prompt_ids"),
        (Request("a", tuple([5] * 100)), "prompt_ids"),  # does not fit the pool
        (Request("a", (5,), SamplingParams(max_tokens=100)), "max_tokens"),
        (Request("a", (5,), SamplingParams(max_tokens=0)), "max_tokens"),
        (Request("a", (5,), SamplingParams(temperature=-1.0)), "temperature"),
        (Request("a", (5,), SamplingParams(temperature=float("nan"))), "temperature"),
        (Request("a", (5,), SamplingParams(top_p=0.0)), "top_p"),
        (Request("a", (5,), SamplingParams(min_tokens=17)), "min_tokens"),
        (Request("a", (5,), SamplingParams(logit_bias={VOCAB: 1.0})), "logit_bias"),
        (Request("a", (5,), SamplingParams(stop_token_ids=(VOCAB,))), "stop_token_ids"),
        (Request("a", (5,), SamplingParams(n=0)), "n"),
        (Request("a", (5,), SamplingParams(logprobs=VOCAB + 1)), "logprobs"),
    ]:
        with pytest.raises(RequestRefused) as refusal:
            engine.submit(bad)
        assert refusal.value.field == field, str(refusal.value)
    answers = drain(engine)
    assert set(answers) == {("good", 0)}


def test_cancelling_one_choice_leaves_the_others() -> None:
    """Choice 0 is cancelled before the prompt is done, choice 2 in the middle."""
    params = SamplingParams(n=3, max_tokens=5, temperature=1.0, seed=1, ignore_eos=True)
    request = Request("r", tuple(range(3, 33)), params)
    engine = Engine(tiny_model(), EngineConfig(token_budget=8, page_size=8, num_pages=40))
    engine.submit(request)
    events = engine.step()
    assert engine.cancel("r", 0)
    assert not engine.cancel("r", 0), "it is gone already"
    while len([e for e in events if e.choice == 2]) < 2:
        events += engine.step()
    assert engine.cancel("r", 2)
    while engine.has_work:
        events += engine.step()
    answers, alone = collect(events), solo(tiny_model(), request)
    assert answers["r", 0].token_ids == ()
    assert answers["r", 1].token_ids == alone[1].token_ids
    assert answers["r", 2].token_ids == alone[2].token_ids[:2]
    reasons = [answers["r", c].finish_reason for c in range(3)]
    assert reasons == [FinishReason.CANCELLED, FinishReason.LENGTH, FinishReason.CANCELLED]
    assert engine.stats().pages_used == 0


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_cancelling_all_choices_at_any_moment_leaves_nothing(steps: int, one_by_one: bool) -> None:
    """While it waits, in the middle of its prompt, and after its choices have begun."""
    engine = Engine(tiny_model(), EngineConfig(token_budget=8, page_size=8, num_pages=40))
    engine.submit(Request("r", tuple(range(3, 27)), SamplingParams(n=3, max_tokens=9, seed=1)))
    events = [event for _ in range(steps) for event in engine.step()]
    for choice in range(3) if one_by_one else [None]:
        assert engine.cancel("r", choice)
    assert engine.stats().running + engine.stats().waiting == 0
    while engine.has_work:
        events += engine.step()
    answers = collect(events)
    assert {a.finish_reason for a in answers.values()} == {FinishReason.CANCELLED}
    assert len(answers) == 3
    assert engine.stats().pages_used == 0


def test_counters_follow_the_formulas() -> None:
    """KV bytes per token, work with and without the cache, and padding that was not spent."""
    engine = Engine(tiny_model(), EngineConfig(token_budget=64, prefix_caching=False))
    tokens = SamplingParams(max_tokens=3, ignore_eos=True)
    drain(engine, [Request("a", (5,) * 10, tokens), Request("b", (6,) * 4, tokens)])
    stats = engine.stats()
    assert stats.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4  # K and V, layers, heads, dim, bytes
    assert stats.prefill_tokens_total == 14
    assert stats.decode_tokens_total == 4
    assert stats.tokens_without_cache_total == (10 + 11 + 12) + (4 + 5 + 6)
    assert stats.padding_tokens_dynamic_total == 6  # one rectangle of 2 x 10 for 10 + 4 tokens
    assert stats.padding_tokens_static_total == (2 * 12 - 18) + 0
    assert stats.padding_tokens_spent_total == 0
    assert stats.budget_utilisation == 18 / (3 * 64)
    assert (stats.prompt_tokens_total, stats.generated_tokens_total) == (14, 6)


def test_non_finite_logits_end_one_request_and_spare_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request whose logits are NaN gets an error event; its neighbour is answered."""
    model = tiny_model()
    honest = model.logits

    def broken(*arguments: Any) -> torch.Tensor:
        """The same logits, but the first wanted row is NaN."""
        out = honest(*arguments).clone()
        out[0] = float("nan")
        return out

    params = SamplingParams(max_tokens=3, ignore_eos=True)
    bad, good = Request("bad", (5, 6), params), Request("good", (7, 8, 9), params)
    engine = Engine(model, EngineConfig())
    engine.submit(bad)
    engine.submit(good)
    with monkeypatch.context() as patch:
        patch.setattr(model, "logits", broken)
        events = engine.step()
    while engine.has_work:
        events += engine.step()
    answers = collect(events)
    assert answers["bad", 0].finish_reason is FinishReason.ERROR
    assert answers["good", 0].token_ids == solo(model, good)[0].token_ids
