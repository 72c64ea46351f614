"""A checkpoint that cannot be served is refused with one sentence that says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from reference_engine.engine import Engine, EngineConfig
from reference_engine.kv_store import CacheTooLarge
from reference_engine.model import LoadedModel, ModelRefused, load_model
from tests.engine.tiny import VOCAB, tiny_llama, tiny_model


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A healthy checkpoint folder."""
    tiny_llama().save_pretrained(tmp_path)
    return tmp_path


def test_loaded_model_knows_its_limits(checkpoint: Path) -> None:
    model = load_model(checkpoint)
    assert (model.vocab_size, model.max_context_tokens) == (VOCAB, 640)
    assert (model.eos_ids, model.bos_id, model.path) == (frozenset({2}), 1, checkpoint)
    assert [(s.kv_heads, s.group, s.head_dim, s.window) for s in model.layers] == [
        (2, 3, 16, None)
    ] * 2


def _weights(folder: Path) -> Path:
    return folder / "model.safetensors"


def _change_weights(folder: Path, change: str) -> None:
    tensors = load_file(_weights(folder))
    name = "model.layers.1.mlp.down_proj.weight"
    if change == "missing":
        del tensors[name]
    elif change == "nan":
        tensors[name][3, 4] = float("nan")
    elif change == "shape":
        tensors[name] = tensors[name][:, :-32].contiguous()
    save_file(tensors, _weights(folder), {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("missing", "is incomplete: 1 weights are missing"),
        ("nan", "down_proj.weight has NaN or infinite values"),
        ("shape", "cannot be loaded|is incomplete"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_damaged_weights_are_refused(checkpoint: Path, change: str, sentence: str) -> None:
    _change_weights(checkpoint, change)
    with pytest.raises(ModelRefused, match=sentence):
        load_model(checkpoint)


def test_truncated_weights_are_refused(checkpoint: Path) -> None:
    content = _weights(checkpoint).read_bytes()
    _weights(checkpoint).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelRefused, match="cannot be loaded"):
        load_model(checkpoint)


def test_folders_that_are_no_checkpoint_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="is not a folder"):
        load_model(tmp_path / "nothing")
    with pytest.raises(ModelRefused, match=r"has no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelRefused, match="is not JSON"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(ModelRefused, match="no-such-model"):
        load_model(tmp_path)


def test_a_cache_larger_than_memory_is_refused() -> None:
    with pytest.raises(CacheTooLarge, match=r"would take .* GiB, .* lower num_pages"):
        Engine(tiny_model(), EngineConfig(num_pages=1 << 34))


@pytest.mark.parametrize("field", ["page_size", "token_budget", "max_num_seqs", "num_pages"])
def test_impossible_dials_are_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        EngineConfig(**{field: 0})


def test_unknown_dtype_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ModelRefused, match="float32, bfloat16, float16"):
        load_model(checkpoint, dtype="int3")


def test_rotary_embedding_that_follows_the_batch_is_refused() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    )
    with pytest.raises(ModelRefused, match="'dynamic' is not supported"):
        LoadedModel(LlamaForCausalLM(config))


def test_architecture_with_unknown_layers_is_refused_by_name() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=32, hidden_size=32, num_hidden_layers=1, state_size=4)
    with pytest.raises(ModelRefused, match="mamba is not supported"):
        LoadedModel(MambaForCausalLM(config))
    assert not torch.is_inference_mode_enabled()
