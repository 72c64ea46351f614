"""The dice probe: its model has the logits that the integers say, and the odds follow from them."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from reference_engine.probe import VARIANTS, Rule, dice_logits, token_probabilities, vocabulary
from reference_engine.probe.config import BOS_ID
from reference_engine.request import SamplingParams
from reference_engine.sampler import Sampler
from tests.probe.conftest import Exported

DICE = VARIANTS["dice"]
TOLERANCE = {"float32": 5e-4, "bfloat16": 0.02, "float16": 0.004}


def prompt(tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [BOS_ID] + [rng.randrange(4, 260) for _ in range(tokens - 1)]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_model_has_the_logits_that_the_integers_say(dtype: str, exported: Exported) -> None:
    model = AutoModelForCausalLM.from_pretrained(
        exported("dice", dtype), dtype=getattr(torch, dtype)
    )
    for tokens in (1, 17, 64, 130):
        ids = prompt(tokens)
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1].double()
        outputs = list(vocabulary(DICE).output_ids)
        right = torch.tensor(dice_logits(DICE, ids), dtype=torch.float64)
        assert (logits - right)[outputs].abs().max() < TOLERANCE[dtype]
        others = [i for i in range(len(right)) if i not in outputs]
        assert logits[others].max() < -55


def test_every_output_token_has_a_logit_of_its_own() -> None:
    logits = dice_logits(DICE, prompt(20))
    faces = sorted(logits[token_id] for token_id in vocabulary(DICE).output_ids)
    assert np.allclose(np.diff(faces), 0.125)
    assert max(range(len(logits)), key=logits.__getitem__) == Rule(DICE).next_token(prompt(20))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.3),
        SamplingParams(temperature=2.0, top_k=7),
        SamplingParams(temperature=1.0, top_p=0.8),
        SamplingParams(temperature=1.5, min_p=0.1),
        SamplingParams(temperature=1.0, top_k=20, top_p=0.7, min_p=0.05),
        SamplingParams(temperature=1.0, repetition_penalty=1.3),
        SamplingParams(temperature=1.0, presence_penalty=0.7, frequency_penalty=0.4),
        SamplingParams(temperature=1.0, logit_bias={70: 2.5, 200: 58.0}),
    ],
    ids=str,
)
def test_the_odds_are_those_that_the_sampler_draws_from(params: SamplingParams) -> None:
    """Two programs, one in plain Python from the rule and one on tensors, agree to 12 digits."""
    ids, prompt_tokens = [*prompt(30), 70, 71, 70, 90], 30
    mine = token_probabilities(DICE, ids, prompt_tokens, params)
    assert sum(mine) == pytest.approx(1.0)
    sampler = Sampler()
    row = torch.tensor(dice_logits(DICE, ids), dtype=torch.float64)
    row = sampler.penalised(row, params, ids[:prompt_tokens], ids[prompt_tokens:])
    row = sampler.biased(row, params)
    if params.temperature == 0:
        assert mine[int(row.argmax())] == 1.0
    else:
        assert np.allclose(sampler.candidates(row, params), mine, atol=1e-12)


def test_drawn_tokens_follow_the_odds() -> None:
    """A chi-square test over the engine's own sampler; the seed makes it the same every time."""
    from scipy.stats import chisquare

    ids = prompt(25)
    params = SamplingParams(temperature=1.0, top_k=12)
    odds = np.array(token_probabilities(DICE, ids, len(ids), params))
    row = torch.tensor(dice_logits(DICE, ids), dtype=torch.float32)
    sampler = Sampler()
    counts = np.zeros(len(odds))
    for seed in range(3000):
        live = SimpleNamespace(
            request=SimpleNamespace(params=params, prompt_ids=ids),
            seed=seed,
            end_ids=frozenset[int](),
        )
        counts[sampler.choose(row, live, 0, [])] += 1
    possible = odds > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], 3000 * odds[possible]).pvalue > 0.001


def test_other_probes_have_no_odds() -> None:
    with pytest.raises(ValueError, match="no dice probe"):
        dice_logits(VARIANTS["plain"], prompt(3))
