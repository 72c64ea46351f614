"""Exact replacements for the layers of a transformers model that reduce floats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from reference_engine import numerics
from reference_engine.exact_experts import ExactExperts, ExactRouter, exact_experts, exact_router
from reference_engine.row_kernels import TORCH, RowKernels


class ExactLinear(nn.Module):
    """`nn.Linear` through `numerics.linear`. The original's matrix is not kept."""

    def __init__(self, original: nn.Linear, kernels: RowKernels = TORCH) -> None:
        super().__init__()
        self.matrix = kernels.weight(original.weight)
        self.bias = original.bias
        self.in_features = original.in_features
        self.out_features = original.out_features

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features] -> [..., out_features]."""
        return numerics.linear(x, self.matrix, self.bias)


class ExactRMSNorm(nn.Module):
    """Root mean square norm; ``unit_offset`` adds 1 to the weight, as Gemma does."""

    def __init__(
        self,
        weight: Tensor | None,
        eps: float,
        *,
        unit_offset: bool,
        kernels: RowKernels = TORCH,
    ) -> None:
        super().__init__()
        self.kernels = kernels
        self.eps = eps
        scale = None if weight is None else weight.detach().float()
        if scale is not None and unit_offset:
            scale = 1.0 + scale
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width] -> [..., width]."""
        return self.kernels.rms_norm(x, self.scale, self.eps)


class ExactLayerNorm(nn.Module):
    """Layer norm with or without weight and bias."""

    def __init__(
        self,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        kernels: RowKernels = TORCH,
    ) -> None:
        super().__init__()
        self.kernels = kernels
        self.weight = weight
        self.bias = bias
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width] -> [..., width]."""
        return self.kernels.layer_norm(x, self.weight, self.bias, self.eps)


class UnknownLayer(ValueError):
    """The model has a layer that the engine cannot make exact."""


def make_exact(model: nn.Module, kernels: RowKernels = TORCH) -> None:
    """Replace every linear and norm inside ``model`` by one that computes with ``kernels``.

    Raises UnknownLayer by name for a layer that is of no known kind.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            exact = _exact_twin(child, kernels)
            if exact is not None:
                setattr(parent, name, exact)
    for path, module in model.named_modules():
        if not list(module.children()) and not _is_known(module):
            kind = type(module).__name__
            raise UnknownLayer(f"layer {path} is a {kind}, which the engine cannot make exact")


def linear_weights(model: nn.Module) -> Iterator[numerics.LinearWeight]:
    """Every weight matrix of an exact model."""
    for module in model.modules():
        for value in vars(module).values():
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, numerics.LinearWeight):
                    yield item


def _exact_twin(module: nn.Module, kernels: RowKernels) -> nn.Module | None:
    if type(module) is nn.Linear:
        return ExactLinear(module, kernels)
    if type(module).__name__ == "Conv1D" and isinstance(module.weight, Tensor):
        return ExactLinear(_linear_of(module.weight, module.bias), kernels)
    if type(module) is nn.LayerNorm:
        return ExactLayerNorm(module.weight, module.bias, module.eps, kernels)
    if (experts := exact_router(module, kernels) or exact_experts(module, kernels)) is not None:
        return experts
    if "RMSNorm" in type(module).__name__:
        return _exact_rms_norm(module, kernels)
    return None


def _linear_of(weight: Tensor, bias: Any) -> nn.Linear:
    """GPT-2's layout: a linear whose weight is [in, out]."""
    linear = nn.Linear(weight.shape[0], weight.shape[1], device="meta")
    linear.weight = nn.Parameter(weight.detach().T.contiguous(), requires_grad=False)
    linear.bias = bias
    return linear


def _exact_rms_norm(module: nn.Module, kernels: RowKernels) -> ExactRMSNorm:
    """The twin that agrees with the original on random rows: families scale in different ways."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps", None)
    if weight is not None and isinstance(eps, float):
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(4, weight.shape[0], generator=generator).to(weight.device, weight.dtype)
        expected = module(rows).float()
        # The original may round once more, before it scales: two units in the last place.
        rtol = max(1e-3, 2 * torch.finfo(weight.dtype).eps)
        for unit_offset in (False, True):
            twin = ExactRMSNorm(weight, eps, unit_offset=unit_offset, kernels=kernels)
            if torch.allclose(twin(rows).float(), expected, rtol=rtol, atol=1e-5):
                return twin
    raise UnknownLayer(f"the norm {type(module).__name__} is of a kind the engine does not know")


def _is_known(module: nn.Module) -> bool:
    if isinstance(module, (ExactLinear, ExactRMSNorm, ExactLayerNorm, nn.Embedding, nn.Dropout)):
        return True
    if isinstance(module, (ExactRouter, ExactExperts, nn.Identity, nn.ModuleList)):
        return True
    kind = type(module)
    is_activation = "activation" in kind.__module__
    return is_activation or kind.__name__.endswith("RotaryEmbedding")
