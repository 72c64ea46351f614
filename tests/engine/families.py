"""Tiny random models of many architectures: transformers' own, and the same taken over."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch

from reference_engine.model import LoadedModel
from tests.engine.tiny import VOCAB

SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 640,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
WINDOW = 12


FAMILIES = (
    "llama",
    "qwen2",
    "qwen3",
    "mistral-window",
    "gemma2",
    "gemma3",
    "phi3",
    "olmo2",
    "granite",
    "gpt-neox",
    "gpt2",
    "mixtral",
    "qwen2-moe",
    "qwen3-moe",
)


def _config(name: str) -> Any:
    import transformers as t

    hybrid = ["sliding_attention", "full_attention"]
    makers: dict[str, Any] = {
        "llama": lambda: t.LlamaConfig(**SHAPE),
        "qwen2": lambda: t.Qwen2Config(**SHAPE),
        "qwen3": lambda: t.Qwen3Config(**SHAPE),
        "mistral-window": lambda: t.MistralConfig(**SHAPE, sliding_window=WINDOW),
        "gemma2": lambda: t.Gemma2Config(
            **SHAPE, sliding_window=WINDOW, layer_types=hybrid, query_pre_attn_scalar=16
        ),
        "gemma3": lambda: t.Gemma3TextConfig(
            **SHAPE, sliding_window=WINDOW, layer_types=hybrid, query_pre_attn_scalar=16
        ),
        "phi3": lambda: t.Phi3Config(**SHAPE),
        "olmo2": lambda: t.Olmo2Config(**SHAPE),
        "mixtral": lambda: t.MixtralConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2),
        "qwen2-moe": lambda: t.Qwen2MoeConfig(
            **SHAPE,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
        ),
        "qwen3-moe": lambda: t.Qwen3MoeConfig(
            **SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
        ),
        "granite": lambda: t.GraniteConfig(**SHAPE),
        "gpt-neox": lambda: t.GPTNeoXConfig(
            **{k: v for k, v in SHAPE.items() if k not in ("num_key_value_heads", "head_dim")}
        ),
        "gpt2": lambda: t.GPT2Config(
            vocab_size=VOCAB,
            n_embd=64,
            n_layer=2,
            n_head=4,
            n_positions=640,
            initializer_range=0.3,
            bos_token_id=1,
            eos_token_id=2,
        ),
    }
    return makers[name]()


@cache
def original(name: str) -> Any:
    """The family's model with random weights, as transformers runs it."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(_config(name), dtype=torch.float32).eval()


@cache
def exact(name: str) -> LoadedModel:
    """The same weights, taken over by the engine."""
    return LoadedModel(copy.deepcopy(original(name)))
