"""A converted folder holds the same model: transformers reads it back tensor by tensor."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from harness.targets.gguf_file import NotConvertible, write_gguf
from reference_engine.probe import VARIANTS, export_probe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_probe(VARIANTS["eos"], tmp_path_factory.mktemp("probe") / "model")


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [("eos", "float32"), ("eos", "float16"), ("qwen", "float16")],
)
def test_the_weights_survive_the_round_trip(variant: str, dtype: str, tmp_path: Path) -> None:
    """Another reader of GGUF undoes the permutation and finds every tensor, bit by bit."""
    folder = export_probe(VARIANTS[variant], tmp_path / "model")
    write_gguf(folder, tmp_path / "model.gguf", dtype)
    read = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    ).state_dict()
    original = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    assert read.keys() == original.keys()
    for name, tensor in original.items():
        kept = tensor if tensor.ndim == 1 else tensor.to(getattr(torch, dtype)).float()
        assert torch.equal(read[name], kept), name


def test_another_architecture_is_refused(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
    with pytest.raises(NotConvertible, match="no plain llama or qwen2 model"):
        write_gguf(tmp_path, tmp_path / "model.gguf", "float32")


@pytest.mark.parametrize("variant", ["window", "mistral-window"])
def test_a_sliding_window_is_refused(variant: str, tmp_path: Path) -> None:
    """llama.cpp would load the file and see every token: wrong answers with nobody at fault."""
    folder = export_probe(VARIANTS[variant], tmp_path / "model")
    with pytest.raises(NotConvertible, match="sliding windows"):
        write_gguf(folder, tmp_path / "model.gguf", "float32")


def test_an_unknown_precision_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotConvertible, match="'q3' is none of float32"):
        write_gguf(folder, tmp_path / "model.gguf", "q3")


def test_8_bit_weights_are_as_gguf_rounds_them(folder: Path, tmp_path: Path) -> None:
    write_gguf(folder, tmp_path / "model.gguf", "q8_0")
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    (stored,) = [t for t in reader.tensors if t.name == "blk.0.ffn_down.weight"]
    assert stored.tensor_type == gguf.GGMLQuantizationType.Q8_0
    with safe_open(folder / "model.safetensors", framework="pt") as weights:
        right = weights.get_tensor("model.layers.0.mlp.down_proj.weight").numpy()
    read = gguf.quants.dequantize(stored.data, stored.tensor_type)
    assert np.abs(read - right).max() <= np.abs(right).max() / 127
