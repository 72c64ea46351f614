"""The ``config.json`` of an exported probe, readable by old and new versions of transformers."""

from __future__ import annotations

from typing import Any, Final

from reference_engine.probe.config import Family, ProbeConfig
from reference_engine.probe.vocabulary import vocabulary

_ARCHITECTURES: Final[dict[Family, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}


def model_document(config: ProbeConfig, dtype: str) -> dict[str, Any]:
    """The content of ``config.json``."""
    from reference_engine.probe.layout import layout
    from reference_engine.probe.mlp_weights import intermediate_size

    return {
        "architectures": [_ARCHITECTURES[config.family]],
        "model_type": config.family,
        "vocab_size": vocabulary(config).size,
        "hidden_size": layout(config).hidden_size,
        "intermediate_size": intermediate_size(config),
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_context_tokens,
        "rms_norm_eps": 1e-6,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "pad_token_id": config.pad_id,
        "dtype": dtype,
        "torch_dtype": dtype,
        **_family_fields(config),
    }


def _family_fields(config: ProbeConfig) -> dict[str, Any]:
    window = next((window for window in config.windows if window is not None), None)
    match config.family:
        case "llama":
            return {"attention_bias": False, "mlp_bias": False}
        case "mistral":
            return {"sliding_window": window}
        case "qwen2":
            kinds = [
                "full_attention" if config.window(level) is None else "sliding_attention"
                for level in range(config.layers)
            ]
            return {
                "use_sliding_window": window is not None,
                "sliding_window": window,
                "max_window_layers": config.layers,
                "layer_types": kinds,
            }
