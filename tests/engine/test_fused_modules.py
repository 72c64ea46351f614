"""The fused twins mean what the blocks they replace mean, and are left out where they do not."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaMLP

from reference_engine import cpu_kernels
from reference_engine.fused_modules import FusedAttention, FusedGatedMLP, fuse
from tests.engine.tiny import tiny_llama


def test_every_block_of_a_llama_is_fused() -> None:
    model = copy.deepcopy(tiny_llama())
    from reference_engine.attention import exact

    exact.register()
    model.set_attn_implementation(exact.IMPLEMENTATION)
    assert fuse(model) == 4
    kinds = [type(m) for m in model.modules()]
    assert kinds.count(FusedAttention) == kinds.count(FusedGatedMLP) == 2


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
def test_a_block_that_disagrees_with_its_twin_stays(activation: str) -> None:
    """The class is known, but only silu is what the twin computes."""
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=32, intermediate_size=48, hidden_act=activation)
    parent = torch.nn.Sequential(LlamaMLP(config).requires_grad_(False))
    assert fuse(parent) == (activation == "silu")


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_gate_rows_agree_with_fp64(scale: float) -> None:
    """From tiny gates to gates whose exponential overflows fp32."""
    generator = torch.Generator().manual_seed(1)
    gate_up = torch.randn(5, 2 * 70, generator=generator)
    gate_up[:, :70] *= scale
    out = torch.empty(5, 70)
    cpu_kernels.gate_rows(out.numpy(), gate_up.numpy())
    gate, up = gate_up.double().chunk(2, -1)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-30)
    for row in range(5):
        alone = torch.empty(1, 70)
        cpu_kernels.gate_rows(alone.numpy(), gate_up[row : row + 1].numpy())
        assert torch.equal(alone[0], out[row])


def test_a_nan_gate_shouts() -> None:
    gate_up = torch.ones(1, 64)
    gate_up[0, 3] = float("nan")
    out = torch.empty(1, 32)
    cpu_kernels.gate_rows(out.numpy(), gate_up.numpy())
    assert torch.isnan(out).nonzero().tolist() == [[0, 3]]
