"""Where every tensor lies, and who waits for whom, on a device that holds no numbers.

Torch's ``meta`` device stands for CUDA: its tensors have a shape, a type and a place. An operation
on tensors of two devices is refused, and so is reading a number back: what passes here mixes no
devices and, in the decode step, never waits for the device, without which it could not be captured.
Kernels that only a real device can run are replaced by ones that return an empty tensor of the
right shape and place, and refuse arguments from elsewhere.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; the extra `gpu` brings it")

from reference_engine import triton_kernels
from reference_engine.attention.exact import AttentionStep
from reference_engine.attention.flash import Flash2Kernel, Flash3Kernel, FlashAttention
from reference_engine.attention.paged_triton import PagedTritonAttention
from reference_engine.batch import BatchBuilder, BatchSequence
from reference_engine.decode_graphs import DecodeGraphs, run_eagerly
from reference_engine.engine import EngineConfig
from reference_engine.kv_store import PagedStore, page_groups
from reference_engine.model import LoadedModel
from reference_engine.triton_rows import TritonKernels
from tests.engine.families import original

DEVICE = torch.device("meta")


def _on_device(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        assert tensor.device == DEVICE, f"a kernel is given a tensor on {tensor.device}"


@pytest.fixture
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        _on_device(x, weight)
        return x.new_empty(x.shape[0], weight.shape[0])

    def norm(x: torch.Tensor, *weights: Any) -> torch.Tensor:
        _on_device(x, *weights[:-1])
        return torch.empty_like(x)

    def attend(
        self: Any, plan: Any, source: Any, layer: int, queries: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        _on_device(plan.owner, plan.positions, plan.block_table, *source.rows(layer), queries)
        return torch.empty_like(queries.transpose(0, 1))

    monkeypatch.setattr(triton_kernels, "linear", linear)
    monkeypatch.setattr(triton_kernels, "rms_norm", norm)
    monkeypatch.setattr(triton_kernels, "layer_norm", norm)
    monkeypatch.setattr(PagedTritonAttention, "attend", attend)
    monkeypatch.setattr(torch, "allclose", lambda *_, **__: True)  # a twin's test reads numbers


def flash(kernel: Any) -> FlashAttention:
    def function(q: torch.Tensor, *tensors: Any, **named: Any) -> torch.Tensor:
        given = [t for t in (*tensors, *named.values()) if isinstance(t, torch.Tensor)]
        _on_device(q, *given)
        return torch.empty_like(q)

    return FlashAttention(kernel(function), DEVICE)


ATTENTIONS = {
    "triton": lambda: PagedTritonAttention(DEVICE),
    "flash2": lambda: flash(Flash2Kernel),
    "flash3": lambda: flash(Flash3Kernel),
}


def _model(family: str, attention: str) -> LoadedModel:
    model = copy.deepcopy(original(family)).to(DEVICE)
    return LoadedModel(model, kernels=TritonKernels(), attention=ATTENTIONS[attention]())


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_everything_is_on_the_device_and_a_decode_step_never_waits(
    family: str, attention: str
) -> None:
    model = _model(family, attention)
    assert model.device == DEVICE
    config = EngineConfig(page_size=256, num_pages=6, max_num_seqs=4)
    store = PagedStore(model.layers, page_groups(model.layers, config), 256, model.dtype, DEVICE)
    sequences = [
        BatchSequence((5,), 300 + i, [[1 + i, 2 + i]] * len(store.trash_tables), 1)
        for i in range(4)
    ]
    batch = BatchBuilder(256).build(sequences)
    store.begin_step(batch.slots)
    logits = model.logits(batch, AttentionStep(batch, store, model.attention))
    assert (logits.device, tuple(logits.shape)) == (DEVICE, (4, model.vocab_size))
    graphs = DecodeGraphs(
        model, store, sizes=(4,), page_size=256, widths=(4,) * len(batch.slots), capture=run_eagerly
    )
    inputs = graphs._inputs(4)
    graphs._run_of(4, inputs)()  # what a DEVICE graph records
    _on_device(graphs._logits, inputs.ids, inputs.positions, *inputs.slots)


@pytest.mark.usefixtures("_kernels")
def test_a_device_that_is_waited_for_would_be_seen() -> None:
    with pytest.raises(RuntimeError, match="meta tensors"):
        torch.zeros(3, device=DEVICE).sum().item()
    with pytest.raises(NotImplementedError):
        torch.zeros(3, device=DEVICE).cpu()
    with pytest.raises(RuntimeError, match="device"):
        _ = torch.zeros(3, device=DEVICE) + torch.zeros(3)
