"""The exported model against the rule, on transformers: another implementation of everything."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from reference_engine.probe import VARIANTS, Rule
from reference_engine.probe.proof import Proof, context_prompt, proof_prompts, prove
from tests.probe.conftest import Exported

DTYPES = ["float32", "bfloat16", "float16"]
SMALLEST_MARGIN = 35.0
DICE_MARGIN = 0.12  # of 1/8, what the least coin weighs
FLOAT16_MAX = 65504.0


def assert_holds(proof: Proof) -> None:
    __tracebackhide__ = True
    assert proof.holds, f"{proof.model} in {proof.dtype} is not its rule: {proof}"
    smallest = DICE_MARGIN if "dice" in proof.model else SMALLEST_MARGIN
    assert proof.smallest_margin > smallest, f"a margin of {proof.smallest_margin}"
    assert proof.largest_activation < FLOAT16_MAX, f"an output of {proof.largest_activation}"


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [("eos", dtype) for dtype in DTYPES]
    + [(variant, "bfloat16") for variant in VARIANTS if variant != "eos"],
)
def test_a_sample_of_ragged_prompts_is_token_exact(
    variant: str, dtype: str, exported: Exported
) -> None:
    config = VARIANTS[variant]
    prompts = [p for p in proof_prompts(config, 24) if 15 < len(p) < 130]
    proof = prove(config, exported(variant, dtype), dtype, prompts, generate_every=10)
    assert_holds(proof)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "eos" else pytest.mark.nightly)
        for name in VARIANTS
    ],
)
def test_two_hundred_ragged_prompts_are_token_exact(
    variant: str, dtype: str, exported: Exported
) -> None:
    config = VARIANTS[variant]
    proof = prove(config, exported(variant, dtype), dtype, proof_prompts(config, 208))
    assert proof.answers >= 200
    assert_holds(proof)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "plain" else pytest.mark.nightly)
        for name in VARIANTS
    ],
)
def test_a_prompt_that_fills_the_stated_context_is_token_exact(
    variant: str, dtype: str, exported: Exported
) -> None:
    config = VARIANTS[variant]
    whole = context_prompt(config, 16)
    assert len(whole) + 16 == config.max_context_tokens
    assert_holds(prove(config, exported(variant, dtype), dtype, [whole], answer_tokens=16))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_generate_batch_is_token_exact(dtype: str, exported: Exported) -> None:
    """Transformers' continuous batching: pages, chunks and ragged rows that others wrote."""
    config = VARIANTS["eos"]
    rule = Rule(config)
    prompts = [p for p in proof_prompts(config, 24) if len(p) < 300][:10]
    model = AutoModelForCausalLM.from_pretrained(
        exported("eos", dtype), dtype=getattr(torch, dtype)
    )
    outputs = model.generate_batch(
        inputs=prompts,
        generation_config=GenerationConfig(
            max_new_tokens=24, do_sample=False, eos_token_id=config.eos_id, pad_token_id=0
        ),
        continuous_batching_config=ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64),
        progress_bar=False,
    )
    answers = [list(output.generated_tokens) for output in outputs.values()]
    assert answers == [list(rule.generate(p, 24).token_ids) for p in prompts]
