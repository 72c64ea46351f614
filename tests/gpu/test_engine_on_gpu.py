"""The engine's contract on a real device. Without one these are reported as not run."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Request, SamplingParams
from reference_engine.self_test import self_test
from reference_engine.solo import solo
from tests.engine.families import original
from tests.engine.tiny import VOCAB, drain

pytestmark = pytest.mark.gpu
CONFIG = EngineConfig(page_size=256, num_pages=7, token_budget=48, max_num_seqs=16)
SCHEDULES = {
    "plain": {"decode_graphs": False},
    "graphs": {"decode_graphs": True},
    "graphs and overlap": {"decode_graphs": True, "overlap": True},
    "one at a time": {"decode_graphs": True, "max_num_seqs": 1},
    "whole prompts": {"decode_graphs": False, "token_budget": 1024},
}


def device_model(family: str, dtype: torch.dtype) -> LoadedModel:
    return LoadedModel(copy.deepcopy(original(family)).to("cuda", dtype))


def requests() -> list[Request]:
    return [
        Request(
            f"r{i}",
            tuple(3 + (i * 31 + j * j * 7) % (VOCAB - 3) for j in range(length)),
            SamplingParams(max_tokens=6 + i, logprobs=2, temperature=i % 2, seed=i),
        )
        for i, length in enumerate((1, 15, 63, 64, 65, 130, 257, 300))
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral-window", "qwen3"])
def test_every_schedule_has_the_bits_of_solo(family: str, dtype: torch.dtype) -> None:
    """Eager and captured, overlapped, cut, preempted and alone: ids and logprobs are `solo`'s."""
    model = device_model(family, dtype)
    expected = {request.request_id: solo(model, request)[0] for request in requests()}
    for name, options in SCHEDULES.items():
        engine = Engine(model, replace(CONFIG, **options))  # type: ignore[arg-type]
        answers = drain(engine, requests())
        for request_id, alone in expected.items():
            assert answers[request_id, 0] == alone, f"{name}: {request_id} differs"
        graph_steps = engine.stats().graph_steps_total
        assert (graph_steps > 0) is bool(options["decode_graphs"]), f"{name}: {graph_steps} graphs"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_start_up_test_passes(dtype: torch.dtype) -> None:
    assert self_test(device_model("llama", dtype)) > 0


def test_the_device_agrees_with_the_cpu() -> None:
    """Another implementation of every kernel: equal ids, logprobs within 1e-3 in fp32."""
    here, there = (
        device_model("llama", torch.float32),
        LoadedModel(copy.deepcopy(original("llama"))),
    )
    for request in requests()[:5]:
        [ours], [theirs] = solo(here, request), solo(there, request)
        assert ours.token_ids == theirs.token_ids
        for a, b in zip(ours.logprobs, theirs.logprobs, strict=True):
            assert abs(a.logprob - b.logprob) < 1e-3
