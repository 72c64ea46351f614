"""Many architectures, one engine: each exact whatever the batch, and equal to `generate`."""

from __future__ import annotations

import pytest
import torch

from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel, ModelRefused
from reference_engine.request import Request, SamplingParams
from reference_engine.solo import solo
from tests.engine.families import FAMILIES, SHAPE, WINDOW, exact, original
from tests.engine.tiny import VOCAB, drain


def requests() -> list[Request]:
    """On both sides of the sliding window and of the key block, one of them sampled."""
    greedy = SamplingParams(max_tokens=6, logprobs=0, ignore_eos=True)
    sampled = SamplingParams(max_tokens=6, logprobs=0, temperature=0.9, seed=5)
    lengths = (1, WINDOW - 1, WINDOW, 40, 66)
    prompts = [tuple(3 + (i * i * 11 + n) % (VOCAB - 3) for i in range(n)) for n in lengths]
    return [
        *(Request(f"g{len(ids)}", ids, greedy) for ids in prompts),
        Request("sampled", prompts[2], sampled),
    ]


QUICK = ("llama", "gemma2", "mistral-window", "mixtral")


@pytest.mark.parametrize(
    "family",
    [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES],
)
def test_family_is_exact_and_agrees_with_transformers(family: str) -> None:
    """Ragged batches on scarce pages give `solo`'s bits; `solo` gives `generate`'s tokens."""
    model = exact(family)
    config = EngineConfig(page_size=8, num_pages=22, token_budget=24, poison_freed_pages=True)
    engine = Engine(model, config)
    answers = drain(engine, requests())
    for request in requests():
        [alone] = solo(model, request)
        assert answers[request.request_id, 0] == alone
        if request.params.temperature == 0:
            assert_generate_agrees(family, request, alone.token_ids, alone.logprobs)
    assert engine.stats().pages_used == 0


def assert_generate_agrees(family, request, token_ids, logprobs) -> None:  # type: ignore[no-untyped-def]
    theirs = original(family).generate(
        torch.tensor([request.prompt_ids]),
        max_new_tokens=len(token_ids),
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert tuple(theirs.sequences[0, len(request.prompt_ids) :].tolist()) == token_ids
    for logits, score in zip(theirs.logits, logprobs, strict=True):
        other = float(torch.log_softmax(logits[0].float(), -1)[score.token_id])
        assert abs(other - score.logprob) < 1e-4, f"is {score.logprob}, generate says {other}"


def test_window_layers_hold_a_bounded_number_of_pages() -> None:
    """However long a sequence grows, its window layers keep what the window and a chunk span."""
    engine = Engine(exact("gemma2"), EngineConfig(page_size=4, num_pages=200, token_budget=8))
    engine.submit(Request("long", (5,) * 50, SamplingParams(max_tokens=60, ignore_eos=True)))
    most: dict[int | None, int] = {}
    while engine.has_work:
        engine.step()
        for group in engine.page_groups:
            most[group.window] = max(most.get(group.window, 0), group.pool.used)
    assert most[None] == 108 // 4, "the full layers hold everything"
    assert most[WINDOW] <= (WINDOW - 1 + 8) // 4 + 2


def test_attention_sinks_and_longrope_are_refused_by_name() -> None:
    from transformers import GptOssConfig, GptOssForCausalLM, Phi3Config, Phi3ForCausalLM

    shape = {**SHAPE, "num_local_experts": 4, "num_experts_per_tok": 2}
    with pytest.raises(ModelRefused, match="gpt_oss is not supported"):
        LoadedModel(GptOssForCausalLM(GptOssConfig(**shape)))
    factors = [1.0] * 8
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": factors,
        "long_factor": [2.0] * 8,
        "factor": 2.0,
        "original_max_position_embeddings": 320,
    }
    config = Phi3Config(**SHAPE, rope_parameters=rope, original_max_position_embeddings=320)
    with pytest.raises(ModelRefused, match="'longrope' is not supported"):
        LoadedModel(Phi3ForCausalLM(config))
