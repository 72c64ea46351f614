"""A norm is known by what it computes, in every dtype: trained weights round differently."""

import pytest
import torch
from torch import nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from reference_engine.exact_modules import UnknownLayer, _exact_rms_norm
from reference_engine.row_kernels import TorchKernels

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def trained(norm: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The norm with the uneven weights of a trained model."""
    generator = torch.Generator().manual_seed(7)
    weight = 0.2 + 3 * torch.rand(576, generator=generator)
    norm.weight = nn.Parameter(weight.to(dtype), requires_grad=False)
    return norm


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("kind", "offset"), [(LlamaRMSNorm, False), (Gemma2RMSNorm, True)])
def test_a_trained_norm_finds_its_twin(
    kind: type[nn.Module], offset: bool, dtype: torch.dtype
) -> None:
    """The two scalings are told apart, and bfloat16's rounding is not taken for a third."""
    norm = trained(kind(576, eps=1e-5), dtype)
    twin = _exact_rms_norm(norm, TorchKernels())
    assert torch.equal(twin.scale, norm.weight.float() + offset)


class HalvedRMSNorm(LlamaRMSNorm):  # type: ignore[misc]
    """Of a kind that no twin has."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(hidden_states)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_norm_that_computes_something_else_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(UnknownLayer, match="HalvedRMSNorm"):
        _exact_rms_norm(trained(HalvedRMSNorm(576, eps=1e-5), dtype), TorchKernels())
