"""A converted folder holds the same model: transformers reads it back tensor by tensor."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.targets.gguf_file import NotConvertible, write_gguf
from reference_engine.probe import VARIANTS, export_probe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_probe(VARIANTS["eos"], tmp_path_factory.mktemp("probe") / "model")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_weights_survive_the_round_trip(folder: Path, dtype: str, tmp_path: Path) -> None:
    """Another reader of GGUF undoes the permutation and finds every tensor, bit by bit."""
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
    with pytest.raises(NotConvertible, match="no plain llama model"):
        write_gguf(tmp_path, tmp_path / "model.gguf", "float32")
