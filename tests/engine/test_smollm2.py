"""A trained model: 200 ragged prompts of real text on SmolLM2-135M-Instruct.

Needs the checkpoint (`isobatch model fetch smollm2`); skipped where it is not there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import load_model
from reference_engine.numerics import log_softmax
from reference_engine.request import Request, SamplingParams
from reference_engine.solo import full_logits, solo
from tests.engine.tiny import drain

CHECKPOINT = Path("~/.cache/isobatch/models/SmolLM2-135M-Instruct").expanduser()
TEXT = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")
PROMPTS, TOKENS = 200, 8

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not CHECKPOINT.is_dir(), reason="run isobatch model fetch smollm2 first"),
]


def ragged_requests() -> list[Request]:
    """Pieces of the licence, 1 to 150 tokens long, that begin anywhere; every third is sampled."""
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).encode(TEXT).ids
    requests = []
    for i in range(PROMPTS):
        start, length = i * 37 % (len(ids) - 150), 1 + i * i * 13 % 150
        sampled = {"temperature": 0.8, "top_p": 0.9, "seed": i} if i % 3 == 0 else {}
        params = SamplingParams(max_tokens=TOKENS, logprobs=0, ignore_eos=True, **sampled)
        requests.append(Request(f"r{i}", tuple(ids[start : start + length]), params))
    return requests


def test_200_prompts_of_real_text_are_exact() -> None:
    """Logprobs of the ragged run are bitwise those of one full recompute of each answer, greedy
    tokens are its arg max, and some answers are also compared with `solo` and with `generate`.
    """
    from transformers import AutoModelForCausalLM

    model = load_model(CHECKPOINT)
    theirs = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()
    theirs.generation_config.eos_token_id = None  # ours ignores it too
    answers = drain(Engine(model, EngineConfig(num_pages=400)), ragged_requests())
    worst = 0.0
    for i, request in enumerate(ragged_requests()):
        answer = answers[request.request_id, 0]
        whole = (*request.prompt_ids, *answer.token_ids[:-1])
        logits = full_logits(model, whole, last=TOKENS)
        rows = log_softmax(logits)
        for row, score in zip(rows, answer.logprobs, strict=True):
            assert float(row[score.token_id]) == score.logprob, request.request_id
        if request.params.temperature == 0:
            assert tuple(logits.argmax(-1).tolist()) == answer.token_ids
        if i % 20 == 0:
            assert solo(model, request)[0] == answer
        if i % 30 == 1:  # never a sampled one
            generated = theirs.generate(
                torch.tensor([request.prompt_ids]),
                max_new_tokens=TOKENS,
                do_sample=False,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
            assert tuple(generated.sequences[0, -TOKENS:].tolist()) == answer.token_ids
            for other, score in zip(generated.logits, answer.logprobs, strict=True):
                theirs_says = float(torch.log_softmax(other[0], -1)[score.token_id])
                worst = max(worst, abs(theirs_says - score.logprob))
    assert worst < 1e-4, worst
    print(f"largest difference from generate: {worst:.1e} nat")
