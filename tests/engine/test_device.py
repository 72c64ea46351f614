"""The device is chosen by what is there, and a missing one is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from reference_engine.device import DeviceRefused, choose_device, choose_dtype
from reference_engine.engine import Engine, EngineConfig
from reference_engine.kv_store import PagedStore
from reference_engine.model import load_model
from tests.engine.tiny import tiny_llama, tiny_model

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("there", [True, False])
def test_auto_is_cuda_where_there_is_any(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert choose_device() == (CUDA if there else torch.device("cpu"))
    assert choose_device("cpu") == torch.device("cpu")


def test_a_device_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tpu", "cuda:x", "meta", ""):
        with pytest.raises(DeviceRefused, match="is unknown; choose auto, cpu, cuda or cuda:N"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceRefused, match=r"'cuda' is not available.*choose cpu or auto"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(DeviceRefused, match="'cuda:2' is not available: this machine has 2"):
        choose_device("cuda:2")


def test_auto_dtype_is_fp32_on_a_cpu_and_the_checkpoint_s_on_cuda(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "bfloat16"}))
    assert choose_dtype("auto", torch.device("cpu"), tmp_path) is torch.float32
    assert choose_dtype("auto", CUDA, tmp_path) is torch.bfloat16
    assert choose_dtype("float16", CUDA, tmp_path) is torch.float16
    with pytest.raises(ValueError, match="dtype 'int3' is unknown"):
        choose_dtype("int3", CUDA, tmp_path)


def test_model_cache_and_inputs_are_on_one_device(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    model = load_model(tmp_path, dtype="auto", device="cpu")
    assert (model.device, model.dtype) == (torch.device("cpu"), torch.float32)
    store = Engine(model, EngineConfig(num_pages=4)).parts["store"]
    assert isinstance(store, PagedStore)
    assert store.device == model.device


def test_a_page_size_that_the_attention_cannot_use_is_told_at_the_start() -> None:
    from copy import copy

    model = copy(tiny_model())
    model.attention = copy(model.attention)
    model.attention.page_multiple = 256
    with pytest.raises(ValueError, match="multiple of 256, not 16; choose --page-size 256"):
        Engine(model, EngineConfig(page_size=16))
